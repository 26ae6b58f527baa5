"""A key-value store: lines of text over TCP, with the same answers at every node.

    python examples/store.py 127.0.0.1:7001 127.0.0.1:7001,127.0.0.1:7003,127.0.0.1:7005 8001

That starts one of three nodes: its own address, those of all, and the port for clients. Clients say
``put KEY VALUE``, ``get KEY``, ``swap KEY OLD NEW`` or ``delete KEY``, and are answered with a line each.
Every answer is linearizable, whichever node gives it. Kill a node (kill -9) and start it again: as long as
two of three live, nothing that was answered is lost.
"""

import asyncio
import sys

import ordercast


async def answer(store: ordercast.Map[str], words: list[str]) -> str:
    """Do what a client says."""
    match words:
        case ["get", key]:
            return f"value {await store.get(key)}"
        case ["put", key, value]:
            return f"revision {await store.put(key, value)}"
        case ["swap", key, old, new]:
            return f"swapped {await store.compare_and_set(key, None if old == '-' else old, new)}"
        case ["delete", key]:
            return f"deleted {await store.delete(key)}"
    return "error say get KEY, put KEY VALUE, swap KEY OLD NEW or delete KEY"


async def main(own: str, every: str, port: str) -> None:
    """Run a node until the process is killed."""
    async with ordercast.Node(listen=own, seeds=every.split(","), protocol="total") as node:
        store = await node.replicate(ordercast.Map(str), "store")

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                try:
                    async with asyncio.timeout(10):
                        said = await answer(store, line.decode().split())
                except (ordercast.OrdercastError, TimeoutError) as error:
                    said = f"error {type(error).__name__}: {error}"  # unanswered: done, or not
                writer.write(f"{said}\n".encode())
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", int(port)) as server:
            print("serving", flush=True)
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
