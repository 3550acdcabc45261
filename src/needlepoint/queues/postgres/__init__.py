"""PostgreSQL as the queue. A lake imports it when its queue is there.

queue  the queue, through psycopg
"""

from needlepoint.queues.postgres.queue import PostgresQueue

__all__ = ["PostgresQueue"]
