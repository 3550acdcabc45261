"""The routes of the service."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import needlepoint
from needlepoint.errors import NeedlepointError, UnknownName
from needlepoint.lake import Lake, LakeTable, names_in_sql
from needlepoint.query import Result, get_at_once
from needlepoint.row_formats import described
from needlepoint.service.answers import MEDIA_TYPES, Format
from needlepoint.service.console import add_console
from needlepoint.service.flight.server import FlightServer
from needlepoint.service.logs import log_failure, log_request
from needlepoint.service.metrics import Metrics
from needlepoint.service.options import ServiceOptions
from needlepoint.service.problems import RequestProblem, problem, status_of, without_paths
from needlepoint.service.processes import Processes
from needlepoint.service.requests import Query, User, keys_of, user_of
from needlepoint.service.tokens import Tokens
from needlepoint.service.worker import Worker

Answer = TypeVar("Answer")

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ROWS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The rows.", "content": {name: {} for name in MEDIA_TYPES}}
}


def create_app(options: ServiceOptions) -> FastAPI:
    """The service of one lake, which it opens for reading only."""
    options.check()
    return Service(open_lake(options), options).app


def open_lake(options: ServiceOptions) -> Lake:
    """The lake, for reading only. DataFusion is imported here, so that no user's query waits for that."""
    lake = needlepoint.open(options.lake, read_only=True, store=options.store)
    lake.explain("SELECT 1")
    return lake


class Service:
    def __init__(self, lake: Lake, options: ServiceOptions) -> None:
        self._lake = lake
        self._options = options
        self._worker = Worker(options.threads, options.waiting)
        self._tokens = None if options.tokens is None else Tokens(Path(options.tokens))
        self._metrics = Metrics(lake, self._worker)
        self._processes = Processes(lake, self._worker, self._metrics, options.sockets)
        self.app = self._routed()

    def _routed(self) -> FastAPI:
        app = FastAPI(
            title="Needlepoint",
            version=needlepoint.__version__,
            summary="Point lookups and SQL on a lake of Parquet files",
            docs_url=None,  # these pages would fetch scripts from elsewhere
            redoc_url=None,
            lifespan=self._life,
        )
        for kind in (NeedlepointError, RequestValidationError, HTTPException, Exception):
            app.add_exception_handler(kind, self._refused)
        app.post("/v1/sql", responses=_ROWS, response_model=None)(self.sql)
        app.post("/v1/explain")(self.explain)
        app.post("/v1/map")(self.map)
        app.get("/v1/tables")(self.tables)
        app.get("/v1/tables/{table}")(self.table)
        app.router.add_api_route(
            "/v1/tables/{table}/rows",
            self.rows,
            responses=_ROWS,
            response_model=None,
            route_class_override=_LookupRoute,
        )
        app.get("/v1/indexes")(self.indexes)
        app.get("/v1/status")(self.status)
        app.get("/v1/advise")(self.advise)
        app.get("/v1/completion")(self.completion)
        app.get("/v1/queries")(self.queries)
        app.delete("/v1/queries/{query_id}")(self.cancel)
        app.get("/health")(self.health)
        app.get("/ready")(self.ready)
        app.get("/metrics", response_model=None)(self.metrics)
        if self._options.console:
            add_console(app)
        app.add_middleware(_Requests, self._metrics, self._options)
        return app

    @asynccontextmanager
    async def _life(self, app: FastAPI) -> AsyncIterator[None]:
        flight = None
        if self._options.flight_port is not None and self._options.workers == 1:
            flight = FlightServer(self._lake, self._options, self._worker, self._metrics)
        yield
        if flight is not None:
            await asyncio.to_thread(flight.close)
        self._processes.close()
        for query in self._lake.running():  # longer than a shutdown waits
            query.cancel()
        self._worker.close()
        self._lake.close()

    # Queries

    async def sql(self, request: Request, query: Annotated[Query, Body()]) -> Response:
        """Run a query. `Accept` chooses the format: JSON, lines of JSON, CSV or an Arrow IPC stream."""
        user = self._user(request)
        limits, query_id = user.limits(self._options, query.limits), query.query_id or uuid.uuid4().hex[:12]
        engine, (sql, parameters) = self._lake.engine, query.named()
        format = Format.accepted(request.headers.get("accept"), query.report)
        # A report is made in a thread: it plans, which takes long for very many files.
        if not (query.scan or query.report) and (quick := engine.sql_at_once(sql, parameters, limits)) is not None:
            return self._at_once(format, query_id, quick)

        def run() -> Result:
            if query.scan:
                return engine.sql(sql, parameters, use_indexes=False, limits=limits, query_id=query_id)
            return self._lake.sql(sql, parameters, limits=limits, query_id=query_id)

        return await self._answered(request, format, user, query_id, run)

    async def rows(self, request: Request, table: str, columns: str | None = None) -> Response:
        """Rows by key: `?product_id=384209819`. A repeated key means any of its values; `columns` are separated by
        commas."""
        user = self._user(request)
        limits, query_id = user.limits(self._options), uuid.uuid4().hex[:12]
        wanted = None if columns is None else columns.split(",")
        given = request.query_params.multi_items()
        format = Format.accepted(request.headers.get("accept"))
        state = self._lake.engine.fresh_state(table, limits)
        if state is not None:  # then the registry is not read again
            keys = keys_of(given, state.snapshot.table.schema)
            if (quick := get_at_once(self._lake.engine, state, keys, wanted, limits)) is not None:
                return self._at_once(format, query_id, quick)
        found = self._table(user, table)
        keys = keys_of(given, found.schema)
        return await self._answered(
            request, format, user, query_id, lambda: found.get(keys, columns=wanted, limits=limits, query_id=query_id)
        )

    async def explain(self, request: Request, query: Annotated[Query, Body()]) -> dict[str, Any]:
        """What a query would read, and why, without reading it."""
        limits = self._user(request).limits(self._options, query.limits)
        sql, parameters = query.named()
        report = await self._in_place(lambda: self._lake.explain(sql, parameters, limits=limits).to_dict())
        return dict(report)

    async def map(self, request: Request, query: Annotated[Query, Body()]) -> dict[str, Any]:
        """Each file of the tables of a query, and what of it would be read."""
        limits = self._user(request).limits(self._options, query.limits)
        explain, (sql, parameters) = self._lake.explain, query.named()
        maps = await self._in_place(lambda: [each.to_dict() for each in explain(sql, parameters, limits=limits).maps])
        return {"tables": maps}

    def _at_once(self, format: Format, query_id: str, result: Result) -> Response:
        """A lookup of a millisecond: another thread would take longer to begin."""
        self._metrics.result(result, len(result))
        seconds = sum(result.report.seconds.values())
        whole = b"".join(format.pieces(result, query_id, seconds))
        return Response(whole, media_type=format.media_type, headers={"X-Query-Id": query_id})

    async def _answered(
        self, request: Request, format: Format, user: User, query_id: str, run: Callable[[], Result]
    ) -> Response:
        """A small result in one piece; a large one while it is read."""
        headers = {"X-Query-Id": query_id}

        def first() -> tuple[Result, Iterator[bytes], bytes | None]:
            began = time.perf_counter()
            result = run()
            pieces = format.pieces(result, query_id, time.perf_counter() - began)
            return result, pieces, b"".join(pieces) if result.is_complete else None

        place = self._worker.enter(query_id, user.name)
        try:
            result, pieces, whole = await self._unless_left(request, query_id, first)
        except BaseException:
            place.leave()
            raise
        if whole is not None:
            place.leave()
            self._metrics.result(result, len(result))
            return Response(whole, media_type=format.media_type, headers=headers)

        def ended() -> None:
            result.close()
            place.leave()
            self._metrics.result(result, format.rows)

        idle = self._options.idle
        return _Streamed(self._sent(pieces), ended, idle, media_type=format.media_type, headers=headers)

    async def _sent(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (piece := await self._worker.run(lambda: next(pieces, None))) is not None:
            yield piece

    async def _unless_left(self, request: Request, query_id: str, function: Callable[[], Answer]) -> Answer:
        """What a function in a thread returns. If the client goes away, its query is cancelled."""
        running = asyncio.ensure_future(self._worker.run(function))
        leaving = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
            while not running.done():  # it may still wait for a thread
                self._lake.engine.running.cancel(query_id)
                await asyncio.wait({running}, timeout=0.1)
        finally:
            leaving.cancel()
        return await running

    async def _in_place(self, function: Callable[[], Any]) -> Any:
        with self._worker.enter():
            return await self._worker.run(function)

    # The lake

    async def tables(self, request: Request) -> dict[str, Any]:
        """The tables and views that the user may read."""
        limits = self._user(request).limits(self._options)
        tables, views = self._lake.engine.visible(limits)
        return {"tables": sorted(tables), "views": sorted(views)}

    async def table(self, request: Request, table: str) -> dict[str, Any]:
        """Columns, sizes and indexes of a table."""
        columns = described(self._table(self._user(request), table).schema)
        (found,) = [each for each in (await self._in_place(self._lake.status)).tables if each.name == table]
        return {"columns": columns, **_shown(found)}

    async def indexes(self, request: Request) -> dict[str, Any]:
        """The indexes, and how many files each covers."""
        found = (await self.status(request))["tables"]
        return {"indexes": [index for table in found for index in table["indexes"]]}

    async def status(self, request: Request) -> dict[str, Any]:
        """Tables with their sizes and indexes, the events that no indexer has handled, and, for users who may read all
        tables, size, health and lag of the stores."""
        user = self._user(request)
        status = await self._in_place(self._lake.status)
        tables = [_shown(table) for table in status.tables if user.tables is None or table.name in user.tables]
        return {
            "version": needlepoint.__version__,
            "tables": tables,
            "stores": [_shown_store(store) for store in status.stores] if user.tables is None else [],
            "waiting_events": status.waiting_events,
            "events_set_aside": status.events_set_aside,
        }

    async def advise(self, request: Request) -> dict[str, Any]:
        """What would make the queries of the past faster, for each table that the user may read."""
        tables, _ = self._lake.engine.visible(self._user(request).limits(self._options))

        def advice(name: str) -> dict[str, Any]:
            try:
                return asdict(self._lake.advise(name))
            except NeedlepointError as error:  # of this table; others may be well
                return {"table": name, "problem": without_paths(error.message), "queries": 0, "advice": []}

        return {"tables": await self._in_place(lambda: [advice(name) for name in sorted(tables)])}

    async def completion(self, request: Request) -> dict[str, Any]:
        """The names that a query can say: tables and views with their columns, and functions."""
        limits = self._user(request).limits(self._options)
        found = await self._in_place(lambda: names_in_sql(self._lake, limits))
        tables = {
            name: [{"name": column, "type": type} for column, type in columns.items()]
            for name, columns in found.tables.items()
        }
        return {"tables": tables, "functions": found.functions}

    async def queries(self, request: Request) -> dict[str, Any]:
        """The queries that the user runs; without tokens, all."""
        name = self._user(request).name
        return {"queries": await asyncio.to_thread(self._processes.queries, name)}

    async def cancel(self, request: Request, query_id: str) -> dict[str, str]:
        """Cancel a running query."""
        name = self._user(request).name
        if await asyncio.to_thread(self._processes.cancel, name, query_id):
            return {"cancelled": query_id}
        raise UnknownName("query", query_id, [])

    # The process

    async def health(self) -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    async def ready(self) -> dict[str, str]:
        """The lake can be read."""
        await self._worker.run(self._lake.registry.sequence)
        return {"status": "ready"}

    async def metrics(self, request: Request) -> Response:
        """Metrics of all processes of the service, for Prometheus."""
        self._user(request)
        text = await asyncio.to_thread(self._processes.metrics)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def _table(self, user: User, name: str) -> LakeTable:
        """A table that the user may read; for others it is as if it were not there."""
        if user.tables is not None and name not in user.tables:
            raise UnknownName("table", name, user.tables.intersection(self._lake.tables()))
        return self._lake.table(name)

    def _user(self, request: Request) -> User:
        user = user_of(request.headers.get("authorization"), self._tokens)
        request.state.user = user.name
        return user

    async def _refused(self, request: Request, error: Exception) -> Response:
        request_id = request.state.request_id
        error = getattr(request.state, "refusal", error)  # FastAPI replaces what is raised while it reads a body
        if isinstance(error, RequestValidationError):
            error = RequestProblem(422, f"the request is not valid: {_first_of(error)}.", hint="See /openapi.json.")
        elif isinstance(error, HTTPException):
            error = RequestProblem(error.status_code, f"{error.detail}.", headers=dict(error.headers or {}))
        elif not isinstance(error, NeedlepointError):
            log_failure(request_id, error)
        request.state.error = type(error).__name__
        headers = error.headers if isinstance(error, RequestProblem) else {}
        return JSONResponse(problem(error, request_id), status_of(error), headers)


async def _left(request: Request) -> None:
    """Returns when the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Streamed(StreamingResponse):
    """A response that says when it has ended, however it ends. It ends if the client reads nothing for `idle` seconds:
    it would hold a place for ever."""

    def __init__(self, content: AsyncIterator[bytes], ended: Callable[[], None], idle: float, **options: Any) -> None:
        super().__init__(content, **options)
        self._ended = ended
        self._idle = idle or None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def hurried(message: Message) -> None:
            await asyncio.wait_for(send(message), self._idle)

        try:
            await super().__call__(scope, receive, hurried)
        finally:
            self._ended()


class _LookupRoute(APIRoute):
    """Calls its function with the parameters of the request. FastAPI's own way takes twice as long."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handled(request: Request) -> Response:
            found: Response = await self.endpoint(
                request, **request.path_params, columns=request.query_params.get("columns")
            )
            return found

        return handled


class _Requests:
    """Gives each request an id, limits its size, measures it and logs it."""

    def __init__(self, app: ASGIApp, metrics: Metrics, options: ServiceOptions) -> None:
        self._app = app
        self._metrics = metrics
        self._options = options
        self._most_bytes = options.body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET"}  # the server leaves out the body
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        began, status, seen = time.perf_counter(), 500, 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most_bytes:
                state["refusal"] = RequestProblem(413, f"the request has more than {self._most_bytes:,} bytes.")
                raise state["refusal"]
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        host = headers.get(b"host", b"").decode("latin-1")
        try:
            if self._options.accepts(host):
                await self._app(scope, limited, noted)
            else:
                await _refused_host(request_id)(scope, limited, noted)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "unknown")
            self._metrics.request(route, status, seconds)
            log_request(
                request_id=request_id,
                method=method,
                route=route,
                status=status,
                seconds=seconds,
                user=state.get("user", ""),
                error=state.get("error", ""),
            )


def _refused_host(request_id: str) -> Response:
    hint = "Use localhost, or start the service with --allow-host or --tokens."
    error = RequestProblem(421, "the service is not known by this name.", hint=hint)
    return JSONResponse(problem(error, request_id), error.status)


def _shown(table: Any) -> dict[str, Any]:
    """A status without places of the machine."""
    found = asdict(table)
    del found["location"]
    indexes = [{**index, "problem": without_paths(index["problem"])} for index in found["indexes"]]
    return {**found, "indexes": indexes, "problem": without_paths(found["problem"])}


def _shown_store(store: Any) -> dict[str, Any]:
    found = asdict(store)
    del found["place"]
    return {**found, "problem": without_paths(found["problem"])}


def _first_of(error: RequestValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
