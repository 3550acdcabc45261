"""Answers the calls of Flight SQL.

A query has two calls: GetFlightInfo plans it and returns its schema and a ticket, DoGet runs it. A prepared statement
is a handle; DoPut adds parameters to it, and returns the handle of both.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from needlepoint.errors import QueryCancelled, UsageError
from needlepoint.lake import Lake
from needlepoint.query import Limits, Result
from needlepoint.service.flight import catalog, messages
from needlepoint.service.flight.idle import IdleStreams
from needlepoint.service.flight.problems import flight_error
from needlepoint.service.flight.sql_info import sql_info
from needlepoint.service.flight.statements import Statement
from needlepoint.service.flight.users import KEY, Handshake, Users
from needlepoint.service.logs import log_request
from needlepoint.service.metrics import Metrics
from needlepoint.service.options import ServiceOptions
from needlepoint.service.problems import RequestProblem, status_of
from needlepoint.service.requests import User
from needlepoint.service.tokens import Tokens
from needlepoint.service.worker import Place, Worker

_CANCELLED, _NOT_CANCELLABLE = 1, 3  # Flight.proto, CancelStatus
_ACTIONS = {
    "CreatePreparedStatement": "Prepare a query; its handle contains it.",
    "ClosePreparedStatement": "Nothing to do: the server keeps no prepared statements.",
    "CancelFlightInfo": "Cancel a running query.",
}
_NOTICE = 0.05  # seconds until it is noticed that a client has gone
_PATIENCE = 2.0  # seconds for cancelled queries to end


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves from its own threads, from its creation until `close`."""

    def __init__(self, lake: Lake, options: ServiceOptions, worker: Worker, metrics: Metrics) -> None:
        assert options.flight_port is not None
        self._lake = lake
        self._options = options
        self._worker = worker
        self._metrics = metrics
        self._running: dict[Place, str] = {}  # the id of each query
        self._idle = IdleStreams(options.idle)
        tokens = None if options.tokens is None else Tokens(Path(options.tokens))
        certificates = None
        if options.certificate is not None and options.private_key is not None:
            certificates = [(Path(options.certificate).read_bytes(), Path(options.private_key).read_bytes())]
        scheme = "grpc" if certificates is None else "grpc+tls"
        host = f"[{options.host}]" if ":" in options.host else options.host
        try:
            super().__init__(
                f"{scheme}://{host}:{options.flight_port}",
                auth_handler=Handshake(),
                tls_certificates=certificates,
                middleware={KEY: Users(tokens)},
            )
        except OSError as error:
            raise UsageError(
                f"Flight SQL cannot listen on {host}:{options.flight_port}: {error}.", hint="Choose another port."
            ) from None

    def close(self) -> None:
        """Finish the running queries, and cancel those that take too long. A client that does not read its rows is left
        to the end of the process."""
        ending = threading.Thread(target=self.shutdown, daemon=True, name="needlepoint-flight-shutdown")
        ending.start()
        ending.join(self._options.shutdown_seconds)
        for query_id in list(self._running.values()):
            self._lake.engine.running.cancel(query_id)
        ending.join(_PATIENCE)
        self._idle.close()

    # Calls

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._call(context, "GetFlightInfo") as user:
            return self._info(user, descriptor)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with self._call(context, "GetSchema") as user:
            return flight.SchemaResult(self._info(user, descriptor).schema)

    def do_get(self, context: Any, ticket: Any) -> Any:
        began = time.perf_counter()
        with self._call(context, "DoGet", is_last=False) as user:
            name, asked = messages.unpack(self._limited(ticket.ticket))
            if name != "TicketStatementQuery":
                found = flight.RecordBatchStream(self._described(user, name, asked))
                self._note("DoGet", 200, began, user)
                return found
            rows = self._rows(context, user, Statement.from_handle(asked.statement_handle), began)
            return flight.GeneratorStream(next(rows), rows)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._call(context, "DoPut"):
            name, asked = messages.unpack(self._limited(descriptor.command))
            if name != "CommandPreparedStatementQuery":
                raise RequestProblem(400, "the lake cannot be changed here.", hint="Only queries are answered.")
            statement = Statement.from_handle(asked.prepared_statement_handle)
            bound = statement.with_parameters(_read_all(reader, self._options.body_bytes))
            result = messages.new("DoPutPreparedStatementResult", prepared_statement_handle=bound.handle())
            writer.write(pa.py_buffer(result.SerializeToString()))

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        with self._call(context, action.type if action.type in _ACTIONS else "DoAction") as user:
            body = self._limited(action.body.to_pybytes())
            if action.type == "CreatePreparedStatement":
                asked = messages.unpack_as("ActionCreatePreparedStatementRequest", body)
                return iter([self._prepared(user, asked.query)])
            if action.type == "ClosePreparedStatement":
                return iter([])
            if action.type == "CancelFlightInfo":
                return iter([self._cancelled(user, messages.read("CancelFlightInfoRequest", body).info)])
            there = ", ".join(_ACTIONS)
            raise RequestProblem(400, f"there is no action '{action.type[:100]}'.", hint=f"There is: {there}.")

    def list_flights(self, context: Any, criteria: Any) -> Any:
        raise flight.FlightServerError("Flights are not listed. Ask for tables with GetTables of Flight SQL.")

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> Any:
        raise flight.FlightServerError("DoExchange is not supported. Only queries are answered.")

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return list(_ACTIONS.items())

    # Answers

    def _limited(self, data: bytes) -> bytes:
        if len(data) > self._options.body_bytes:
            raise RequestProblem(413, f"the request has more than {self._options.body_bytes:,} bytes.")
        return data

    def _info(self, user: User, descriptor: Any) -> Any:
        """The schema of the rows, and the ticket that brings them."""
        name, asked = messages.unpack(self._limited(descriptor.command))
        if name in ("CommandStatementQuery", "CommandPreparedStatementQuery"):
            statement = (
                Statement.of(asked.query)
                if name == "CommandStatementQuery"
                else Statement.from_handle(asked.prepared_statement_handle)
            ).named(uuid.uuid4().hex)
            ticket = messages.pack(messages.new("TicketStatementQuery", statement_handle=statement.handle()))
            schema = self._in_place(lambda: statement.schema(self._lake, self._limits(user)))
        else:
            ticket, schema = descriptor.command, self._described(user, name, asked).schema
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def _prepared(self, user: User, query: str) -> bytes:
        statement, limits = Statement.of(query), self._limits(user)

        def schemas() -> tuple[pa.Schema, pa.Schema]:
            return statement.schema(self._lake, limits), statement.parameter_types(self._lake, limits)

        rows, parameters = self._in_place(schemas)
        result = messages.new(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=statement.handle(),
            dataset_schema=rows.serialize().to_pybytes(),
            parameter_schema=parameters.serialize().to_pybytes(),
        )
        return messages.pack(result)

    def _cancelled(self, user: User, info: bytes) -> bytes:
        try:
            (endpoint,) = flight.FlightInfo.deserialize(info).endpoints
        except (pa.ArrowException, ValueError) as error:
            raise messages.UnreadableMessage(f"the flight to cancel cannot be read: {error}") from None
        ticket = messages.unpack_as("TicketStatementQuery", endpoint.ticket.ticket)
        query_id = Statement.from_handle(ticket.statement_handle).query_id
        is_own = self._worker.owner(query_id) == user.name
        status = _CANCELLED if is_own and self._lake.engine.running.cancel(query_id) else _NOT_CANCELLABLE
        return bytes(messages.new("CancelFlightInfoResult", status=status).SerializeToString())

    def _described(self, user: User, name: str, asked: Any) -> pa.Table:
        """What a client asks about the lake and the server."""
        if name == "CommandGetTables":
            return self._in_place(lambda: catalog.tables(self._lake, self._limits(user), asked))
        if name == "CommandGetDbSchemas":
            given = {field.name: value for field, value in asked.ListFields()}
            return catalog.schemas(given.get("catalog"), given.get("db_schema_filter_pattern"))
        if name == "CommandGetXdbcTypeInfo":
            return catalog.types(asked.data_type if asked.HasField("data_type") else None)
        if name == "CommandGetSqlInfo":
            return sql_info(asked.info)
        if name in _CONSTANT:
            return _CONSTANT[name]()
        raise RequestProblem(400, f"{name} is not supported.", hint="Only queries are answered.")

    def _rows(self, context: Any, user: User, statement: Statement, began: float) -> Iterator[Any]:
        """First the schema, then the batches of a query, which is cancelled if the client goes away. Its limits are
        those of all its sets of parameters together."""
        query_id = statement.query_id or uuid.uuid4().hex
        given_up = sum(place.is_left for place in list(self._running))
        if given_up >= self._options.threads + self._options.waiting:
            raise RequestProblem(429, "too many clients do not read their rows.", hint="Read them, or disconnect.")
        place = self._worker.enter(query_id, user.name)
        self._running[place] = query_id
        status, result, schema, total, limits = 500, None, None, 0, self._limits(user)
        try:
            for parameters in statement.sets():
                left = limits if schema is None else _left(limits, began)
                run = partial(self._run, statement.query, parameters, left, query_id)
                result = self._wait(context, query_id, run)
                if schema is None:
                    yield (schema := result.schema)
                sent, batches = 0, result.batches()
                while (batch := self._wait(context, query_id, partial(next, batches, None))) is not None:
                    sent += batch.num_rows
                    limits.check_rows(total + sent)
                    with self._idle.waits(partial(self._give_up, result, place)):
                        yield batch if batch.schema == schema else batch.cast(schema)
                self._metrics.result(result, sent)
                total += sent
            status = 200
        except GeneratorExit:
            status = 499  # the client has gone
            raise
        except BaseException as error:
            status = status_of(error)
            raise flight_error(error) from None
        finally:
            if result is not None:
                result.close()
            del self._running[place]
            place.leave()
            if schema is not None:  # else `_call` notes what went wrong
                self._note("DoGet", status, began, user)

    def _give_up(self, result: Result, place: Place) -> None:
        """End the query of a client that does not read, and let others have its place."""
        try:
            result.close()
        finally:
            place.leave()

    def _run(self, query: str, parameters: dict[str, Any] | None, limits: Limits, query_id: str) -> Result:
        quick = self._lake.engine.sql_at_once(query, parameters, limits)
        if quick is not None:
            return quick
        return self._lake.sql(query, parameters, limits=limits, query_id=query_id)

    def _wait(self, context: Any, query_id: str, function: Callable[[], Any]) -> Any:
        """What a function in one of the query threads returns."""
        future = self._worker.submit(function)
        while not wait([future], _NOTICE).done:
            if context.is_cancelled():
                if future.cancel():
                    raise QueryCancelled("the client has gone.", hint="")
                self._lake.engine.running.cancel(query_id)
        return future.result()

    def _in_place(self, function: Callable[[], Any]) -> Any:
        with self._worker.enter():
            return self._worker.submit(function).result()

    def _limits(self, user: User) -> Limits:
        return user.limits(self._options)

    @contextmanager
    def _call(self, context: Any, method: str, *, is_last: bool = True) -> Iterator[User]:
        """The user of a call. What fails becomes an error of Flight; `is_last`: the call ends with this block."""
        user: User = context.get_middleware(KEY).user
        began, status = time.perf_counter(), 200
        try:
            yield user
        except BaseException as error:
            status, is_last = status_of(error), True
            raise flight_error(error) from None
        finally:
            if is_last:
                self._note(method, status, began, user)

    def _note(self, method: str, status: int, began: float, user: User) -> None:
        seconds = time.perf_counter() - began
        self._metrics.request(f"flight {method}", status, seconds)
        log_request(
            request_id=uuid.uuid4().hex, method="FLIGHT", route=method, status=status, seconds=seconds, user=user.name
        )


_CONSTANT: dict[str, Callable[[], pa.Table]] = {
    "CommandGetCatalogs": catalog.catalogs,
    "CommandGetTableTypes": catalog.table_types,
    "CommandGetPrimaryKeys": catalog.PRIMARY_KEYS.empty_table,  # Parquet files have none
    "CommandGetExportedKeys": catalog.FOREIGN_KEYS.empty_table,
    "CommandGetImportedKeys": catalog.FOREIGN_KEYS.empty_table,
    "CommandGetCrossReference": catalog.FOREIGN_KEYS.empty_table,
}


def _read_all(reader: Any, most_bytes: int) -> pa.Table:
    """The parameters of a client, if they are not too large."""
    batches, size = [], 0
    for chunk in reader:
        size += chunk.data.nbytes
        if size > most_bytes:
            raise RequestProblem(413, f"the parameters have more than {most_bytes:,} bytes.")
        batches.append(chunk.data)
    return pa.Table.from_batches(batches, reader.schema)


def _left(limits: Limits, began: float) -> Limits:
    """The limits with the time that is left of them; 0 would mean no limit."""
    if not limits.seconds:
        return limits
    return replace(limits, seconds=max(0.001, limits.seconds - (time.perf_counter() - began)))
