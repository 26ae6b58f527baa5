"""Key-value buckets for NATS clients (`$KV`): replicated objects of the nodes that serve clients."""
