"""Keys in Redis, or a cluster of it, with redis-py.

    needlepoint:{<lake>:<index>}:store         hash: format, key_bytes, version
    needlepoint:{<lake>:<index>}:runs          set: the runs that were published
    needlepoint:{<lake>:<index>}:parts         hash: id -> blocks, fences, entries, bytes
    needlepoint:{<lake>:<index>}:<part>:<n>    hash: 4,096 blocks of a part, by number; fences in <part>:f<n>
    needlepoint:lake:<lake>                    hash: id of an index -> time when its last part was begun

The braces put all of one index on one node of a cluster, so that a script can publish. Blocks of a part expire until it
is published, and again when it is merged or destroyed: what a killed process left goes away by itself.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from needlepoint import forks
from needlepoint.errors import StoreError
from needlepoint.stores.keys.space import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    FORMAT,
    REMOVED_AGE,
    STAGED_AGE,
    Part,
    Published,
    ServerCalls,
    SpaceState,
    StagedPart,
)
from needlepoint.stores.keys.urls import expanded, scheme_of

_SEGMENT = 4096  # blocks in one hash, about 4 MB
_NAMES_AT_ONCE = 5_000

Answer = TypeVar("Answer")

_CREATE = """
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2], KEYS[3])
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'key_bytes', ARGV[2], 'version', ARGV[3])
end"""

_STATE = """
return {redis.call('HMGET', KEYS[1], 'format', 'key_bytes', 'version'), redis.call('HGETALL', KEYS[2]),
  redis.call('SCARD', KEYS[3])}"""

# KEYS: store, runs, parts, then the segments of added and of removed parts.
# ARGV: version, seconds that removed parts stay, then counts and values as `publish` lists them.
_PUBLISH = """
local at, key = 3, 4
local function take() at = at + 1; return ARGV[at - 1] end
local function take_keys(count)
  local found = {}
  for n = 1, count do found[n] = KEYS[key]; key = key + 1 end
  return found
end
if redis.call('EXISTS', KEYS[1]) == 0 then return 'gone' end
local runs, added, removed = {}, {}, {}
for n = 1, tonumber(take()) do runs[n] = take() end
for n = 1, tonumber(take()) do
  local part = {id = take(), run = take(), facts = take(), blocks = tonumber(take())}
  part.segments = take_keys(tonumber(take()))
  added[n] = part
end
for n = 1, tonumber(take()) do
  removed[n] = {id = take(), segments = take_keys(tonumber(take()))}
end
if #removed > 0 and #added > 0 and redis.call('HEXISTS', KEYS[3], added[1].id) == 1 then return 'done' end
for _, part in ipairs(removed) do
  if redis.call('HEXISTS', KEYS[3], part.id) == 0 then return 'changed' end
end
local new = {}
for _, run in ipairs(runs) do new[run] = redis.call('SISMEMBER', KEYS[2], run) == 0 end
for _, part in ipairs(added) do
  part.wanted = (part.run == '' or new[part.run]) and redis.call('HEXISTS', KEYS[3], part.id) == 0
  if part.wanted then
    local blocks = 0
    for _, segment in ipairs(part.segments) do blocks = blocks + redis.call('HLEN', segment) end
    if blocks ~= part.blocks then return 'lost' end
  end
end
for _, run in ipairs(runs) do redis.call('SADD', KEYS[2], run) end
for _, part in ipairs(added) do
  if part.wanted then
    redis.call('HSET', KEYS[3], part.id, part.facts)
    for _, segment in ipairs(part.segments) do redis.call('PERSIST', segment) end
  end
end
for _, part in ipairs(removed) do
  redis.call('HDEL', KEYS[3], part.id)
  for _, segment in ipairs(part.segments) do redis.call('EXPIRE', segment, ARGV[2]) end
end
redis.call('HSET', KEYS[1], 'version', ARGV[1])
return 'done'"""

_NOTE = "redis.call('HSET', KEYS[1], ARGV[1], redis.call('TIME')[1])"
_IDS = "return {redis.call('HGETALL', KEYS[1]), redis.call('TIME')[1]}"


class RedisKeyServer:
    def __init__(self, url: str) -> None:
        self._url = url
        self._cluster = scheme_of(url).endswith("+cluster")
        errors = (redis.RedisError, redis.exceptions.RedisClusterException)
        self.calls = ServerCalls(url, errors, _is_lost, "Redis")
        self.shown = self.calls.shown
        self._client: Any = None
        self._lock = threading.Lock()
        forks.own(self)

    def abandon(self) -> None:
        """In a child of the process that opened it: see forks.py."""
        forks.leak(self._client)
        self._client, self._lock = None, threading.Lock()

    def space(self, lake: str, index_id: int) -> RedisSpace:
        return RedisSpace(self, lake, index_id)

    def ids(self, lake: str) -> dict[int, float]:
        found, now = self.ask(lambda client: client.eval(_IDS, 1, lake_key(lake)))
        return {int(found[at]): float(now) - float(found[at + 1]) for at in range(0, len(found), 2)}

    def ask(self, question: Callable[[Any], Answer], *, writes: bool = False) -> Answer:
        def attempt() -> Answer:
            client = self._connected()
            try:
                return question(client)
            except Exception as error:
                if self._cluster and _is_lost(error):
                    self.close()  # nodes may be elsewhere now
                raise

        return self.calls(attempt, writes=writes)

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        url = expanded(self._url).replace("+cluster", "", 1)
        limits = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": CONNECT_SECONDS}
        once = Retry(NoBackoff(), 0)  # ServerCalls tries again
        if self._cluster:
            return redis.RedisCluster.from_url(url, retry=once, **limits)
        return redis.Redis.from_url(url, retry=once, **limits)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def refuse_eviction(self) -> None:
        """A server that removes keys when its memory is full would lose parts of indexes again and again."""
        where = {"target_nodes": redis.RedisCluster.PRIMARIES} if self._cluster else {}
        found = self.ask(lambda client: client.info("memory", **where))
        for each in found.values() if self._cluster and "maxmemory_policy" not in found else [found]:
            if int(each.get("maxmemory", 0)) and str(each.get("maxmemory_policy", "")).startswith("allkeys"):
                raise StoreError(
                    f"{self.shown} removes keys when its memory is full ({each['maxmemory_policy']}).",
                    hint="Set its maxmemory-policy to noeviction.",
                )


class RedisSpace:
    """The store of one index."""

    def __init__(self, server: RedisKeyServer, lake: str, index_id: int) -> None:
        self._server = server
        self._id = index_id
        self._lake = lake_key(lake)
        self._prefix = f"needlepoint:{{{lake}:{index_id}}}:"
        self._keys = tuple(self._prefix + name for name in ("store", "runs", "parts"))
        self.shown = f"{server.shown} (index {index_id} of lake {lake})"

    def create(self, key_bytes: int) -> None:
        if self.state() is not None:
            return
        self._server.refuse_eviction()
        version = secrets.token_hex(8)
        self._note()
        create = (_CREATE, 3, *self._keys, FORMAT, key_bytes, version)
        self._server.ask(lambda client: client.eval(*create), writes=True)

    def state(self) -> SpaceState | None:
        store, runs, parts = self._keys
        found, listed, count = self._server.ask(lambda client: client.eval(_STATE, 3, store, parts, runs))
        if found[0] is None:
            return None
        pairs = sorted((int(listed[at]), listed[at + 1]) for at in range(0, len(listed), 2))
        known = tuple(Part(id, *map(int, facts.split(b","))) for id, facts in pairs)
        return SpaceState(int(found[0]), int(found[1]), found[2].decode(), known, int(count))

    def missing(self, runs: Collection[str]) -> set[str]:
        names, left = list(runs), set()
        for start in range(0, len(names), _NAMES_AT_ONCE):
            some = names[start : start + _NAMES_AT_ONCE]
            there = self._server.ask(lambda client, some=some: client.smismember(self._keys[1], some))  # type: ignore[misc]
            left |= {name for name, is_there in zip(some, there, strict=True) if not is_there}
        return left

    def stage(self, part: int) -> None:
        """Its blocks expire by themselves."""
        self._note()

    def _note(self) -> None:
        """That the store is in use now."""
        self._server.ask(lambda client: client.eval(_NOTE, 1, self._lake, self._id), writes=True)

    def put(self, part: int, numbers: Sequence[int], blocks: Sequence[bytes]) -> None:
        segments: dict[str, dict[int, bytes]] = {}
        for number, block in zip(numbers, blocks, strict=True):
            segments.setdefault(self._segment(part, number), {})[number] = block

        def write(client: Any) -> None:
            with client.pipeline(transaction=False) as pipeline:
                for key, values in segments.items():
                    pipeline.hset(key, mapping=values)
                    pipeline.expire(key, STAGED_AGE)
                pipeline.execute()

        self._server.ask(write, writes=True)

    def publish(self, runs: Sequence[str], added: Sequence[StagedPart], removed: Sequence[Part]) -> Published:
        keys = list(self._keys)
        values: list[Any] = [secrets.token_hex(8), REMOVED_AGE, len(runs), *runs, len(added)]
        for each in added:
            part, segments = each.part, self._segments(each.part)
            facts = f"{part.blocks},{part.fences},{part.entries},{part.bytes}"
            values += [part.id, each.run or "", facts, part.blocks + part.fences, len(segments)]
            keys += segments
        values.append(len(removed))
        for part in removed:
            segments = self._segments(part)
            values += [part.id, len(segments)]
            keys += segments
        found = self._server.ask(lambda client: client.eval(_PUBLISH, len(keys), *keys, *values), writes=True)
        return Published(found.decode())

    def fetch(self, wanted: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], bytes]:
        asked: dict[str, list[tuple[int, int]]] = {}
        for part, numbers in wanted.items():
            for number in numbers:
                asked.setdefault(self._segment(part, number), []).append((part, number))

        def read(client: Any) -> list[list[bytes | None]]:
            with client.pipeline(transaction=False) as pipeline:
                for key, places in asked.items():
                    pipeline.hmget(key, [number for _, number in places])
                found: list[list[bytes | None]] = pipeline.execute()
                return found

        found = self._server.ask(read)
        pairs = zip(asked.values(), found, strict=True)
        return {
            place: data
            for places, blocks in pairs
            for place, data in zip(places, blocks, strict=True)
            if data is not None
        }

    def discard(self, part: Part) -> None:
        self._unlink(self._segments(part))

    def tidy(self) -> None:
        """What is left over expires."""

    def destroy(self) -> None:
        store, runs, parts = self._keys
        self._server.ask(lambda client: client.exists(store))  # an error at once where the server is away
        self._server.ask(lambda client: client.unlink(store), writes=True)  # from here on, nothing is published
        facts = self._server.ask(lambda client: client.hgetall(parts))
        for id, each in facts.items():
            self._unlink(self._segments(Part(int(id), *map(int, each.split(b",")))))
        self._server.ask(lambda client: client.unlink(runs, parts), writes=True)
        self._server.ask(lambda client: client.hdel(self._lake, self._id), writes=True)

    def _unlink(self, segments: Sequence[str]) -> None:
        for key in segments:
            self._server.ask(lambda client, key=key: client.unlink(key), writes=True)  # type: ignore[misc]

    def _segment(self, part: int, number: int) -> str:
        if number < 0:
            return f"{self._prefix}{part}:f{(-1 - number) // _SEGMENT}"
        return f"{self._prefix}{part}:{number // _SEGMENT}"

    def _segments(self, part: Part) -> list[str]:
        return [self._segment(part.id, number) for number in range(0, part.blocks, _SEGMENT)] + [
            self._segment(part.id, -1 - number) for number in range(0, part.fences, _SEGMENT)
        ]


def lake_key(lake: str) -> str:
    return f"needlepoint:lake:{lake}"


def _is_lost(error: Exception) -> bool:
    """Whether the request can be tried again."""
    refused = (redis.AuthenticationError, redis.exceptions.AuthorizationError)
    if isinstance(error, refused) or isinstance(error.__cause__, refused):
        return False
    lost = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.ReadOnlyError, redis.exceptions.TryAgainError,
            redis.exceptions.ClusterError, redis.exceptions.RedisClusterException)  # fmt: skip
    return isinstance(error, lost)
