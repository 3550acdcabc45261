"""The messages of FlightSql.proto that the service reads and writes. Fields are numbered from 1 in their order."""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError


class UnreadableMessage(Exception):
    """A message that is no message of Flight SQL, or not one that the service answers."""


PACKAGE = "arrow.flight.protocol.sql"

_FIELDS = {
    "CommandGetSqlInfo": "uint32[] info",
    "CommandGetXdbcTypeInfo": "int32? data_type",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "string? catalog, string? db_schema_filter_pattern",
    "CommandGetTables": "string? catalog, string? db_schema_filter_pattern, string? table_name_filter_pattern, "
    "string[] table_types, bool include_schema",
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": "string? catalog, string? db_schema, string table",
    "CommandGetExportedKeys": "string? catalog, string? db_schema, string table",
    "CommandGetImportedKeys": "string? catalog, string? db_schema, string table",
    "CommandGetCrossReference": "string? pk_catalog, string? pk_db_schema, string pk_table, string? fk_catalog, "
    "string? fk_db_schema, string fk_table",
    "CommandStatementQuery": "string query, bytes? transaction_id",
    "CommandStatementUpdate": "string query, bytes? transaction_id",
    "CommandPreparedStatementQuery": "bytes prepared_statement_handle",
    "CommandPreparedStatementUpdate": "bytes prepared_statement_handle",
    "TicketStatementQuery": "bytes statement_handle",
    "ActionCreatePreparedStatementRequest": "string query, bytes? transaction_id",
    "ActionCreatePreparedStatementResult": "bytes prepared_statement_handle, bytes dataset_schema, "
    "bytes parameter_schema",
    "ActionClosePreparedStatementRequest": "bytes prepared_statement_handle",
    "DoPutPreparedStatementResult": "bytes? prepared_statement_handle",
    "CancelFlightInfoRequest": "bytes info",
    "CancelFlightInfoResult": "int32 status",
    # Not of Flight SQL: what a handle of this service contains.
    "Statement": "string query, bytes parameters, string query_id",
}
_PROTO = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _PROTO.TYPE_STRING,
    "bytes": _PROTO.TYPE_BYTES,
    "bool": _PROTO.TYPE_BOOL,
    "int32": _PROTO.TYPE_INT32,
    "uint32": _PROTO.TYPE_UINT32,
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="needlepoint/flight_sql.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(filter(None, fields.split(", ")), 1):
            type, field_name = field.split(" ")
            added = message.field.add(name=field_name, number=number, type=_TYPES[type.rstrip("?[]")])
            added.label = _PROTO.LABEL_REPEATED if type.endswith("[]") else _PROTO.LABEL_OPTIONAL
            if type.endswith("?"):
                added.proto3_optional, added.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field_name}")
    pool = descriptor_pool.DescriptorPool()
    found = pool.Add(file) or pool.FindFileByName(file.name)
    return {name: message_factory.GetMessageClass(each) for name, each in found.message_types_by_name.items()}


_CLASSES = _classes()
COMMANDS = tuple(name for name in _CLASSES if name.startswith("Command"))


def new(name: str, **fields: Any) -> Any:
    return _CLASSES[name](**fields)


def pack(message: Any) -> bytes:
    """The message as the `Any` that commands, tickets and actions carry."""
    packed = any_pb2.Any()
    packed.Pack(message)
    return bytes(packed.SerializeToString())


def unpack(data: bytes) -> tuple[str, Any]:
    """The name and the content of a packed message; UnreadableMessage if it is none that is known."""
    packed = any_pb2.Any()
    try:
        packed.ParseFromString(data)
        package, _, name = packed.TypeName().rpartition(".")
        if package == PACKAGE and name in _CLASSES:
            return name, _CLASSES[name].FromString(packed.value)
    except DecodeError as error:
        raise UnreadableMessage(f"the message cannot be read: {error}") from None
    raise UnreadableMessage(f"the message is not one of Flight SQL that the service answers: '{packed.type_url[:100]}'")


def unpack_as(name: str, data: bytes) -> Any:
    """The content of a packed message of this name."""
    found, message = unpack(data)
    if found != name:
        raise UnreadableMessage(f"the message is {found}, and {name} is expected")
    return message


def read(name: str, data: bytes) -> Any:
    """A message that is not packed."""
    try:
        return _CLASSES[name].FromString(data)
    except DecodeError as error:
        raise UnreadableMessage(f"the message cannot be read: {error}") from None
