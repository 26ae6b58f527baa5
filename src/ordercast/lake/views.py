"""What SQL sees of a lake beside its tables: views, each computed from rows."""

from __future__ import annotations

_CONFIGURATION = "run, config_seq, config_rep, config_kind"
_MESSAGE = "run, origin, origin_incarnation, number"

VIEWS = {
    "runs": """
        SELECT run, protocol, promises, clock, added, count(*) AS events, count(DISTINCT node) AS nodes,
               min(time_us) AS first_us, max(time_us) AS last_us
        FROM events GROUP BY run, protocol, promises, clock, added
    """,
    "configurations": f"""
        SELECT i.run, i.protocol, i.config_kind AS kind, i.config_seq AS seq, i.config_rep AS rep,
               i.members, i.installs, i.first_us, i.last_us,
               coalesce(d.messages, 0) AS messages, coalesce(d.deliveries, 0) AS deliveries
        FROM (SELECT {_CONFIGURATION}, protocol, first_value(members) AS members, count(*) AS installs,
                     min(time_us) AS first_us, max(time_us) AS last_us
              FROM events WHERE event = 'install' GROUP BY {_CONFIGURATION}, protocol) i
        LEFT JOIN (SELECT {_CONFIGURATION}, count(*) AS messages, sum(times) AS deliveries
                   FROM (SELECT {_CONFIGURATION}, origin, origin_incarnation, number, count(*) AS times
                         FROM events WHERE event = 'deliver'
                         GROUP BY {_CONFIGURATION}, origin, origin_incarnation, number)
                   GROUP BY {_CONFIGURATION}) d
          ON i.run = d.run AND i.config_seq = d.config_seq AND i.config_rep = d.config_rep
             AND i.config_kind = d.config_kind
    """,
    "begun": f"""
        SELECT {_MESSAGE}, min(time_us) FILTER (WHERE event = 'submit') AS submit_us,
               min(time_us) FILTER (WHERE event = 'originate') AS originate_us
        FROM events WHERE event IN ('submit', 'originate') GROUP BY {_MESSAGE}
    """,
    "latency": """
        SELECT d.run, d.protocol, d.node, d.incarnation, d.origin, d.origin_incarnation, d.number,
               d.guarantee, d."group", d.size, d.time_us, d.time_us - b.submit_us AS from_submit_us,
               d.time_us - b.originate_us AS from_originate_us
        FROM events d LEFT JOIN begun b
          ON d.run = b.run AND d.origin = b.origin AND d.origin_incarnation = b.origin_incarnation
             AND d.number = b.number
        WHERE d.event = 'deliver'
    """,
    "stability": f"""
        SELECT s.run, s.protocol, s.node, s.incarnation, s.origin, s.origin_incarnation, s.number,
               s.guarantee, s."group", s.size, s.time_us, s.time_us - d.time_us AS from_deliver_us,
               s.time_us - b.originate_us AS from_originate_us
        FROM events s
        LEFT JOIN (SELECT {_MESSAGE}, node, incarnation, min(time_us) AS time_us
                   FROM events WHERE event = 'deliver' GROUP BY {_MESSAGE}, node, incarnation) d
          ON s.run = d.run AND s.origin = d.origin AND s.origin_incarnation = d.origin_incarnation
             AND s.number = d.number AND s.node = d.node AND s.incarnation = d.incarnation
        LEFT JOIN begun b
          ON s.run = b.run AND s.origin = b.origin AND s.origin_incarnation = b.origin_incarnation
             AND s.number = b.number
        WHERE s.event = 'stable'
    """,
    "violations": """
        SELECT run, added, protocol, judged, version, code, f['property'] AS property, f['nodes'] AS nodes,
               f['culprit'] AS culprit, f['times'] AS times, f['sentence'] AS sentence,
               f['messages'] AS messages, f['configurations'] AS configurations
        FROM (SELECT run, added, protocol, judged, version, code, unnest(found) AS f FROM verdicts)
    """,
}
"""By name. Each may use those before it."""
