"""An operation takes effect exactly once: its record is part of your PostgreSQL transaction, or in any store."""
from .message import Answered, Release, Request, Response
from .operation import (AsyncBound, AsyncOperation, Bound, Operation, bind, bind_async, current, current_async, operation)
from .store import Store
from .web import ASGIMiddleware, WSGIMiddleware, idempotent

__all__ = ["ASGIMiddleware", "Answered", "AsyncBound", "AsyncOperation", "Bound", "Operation", "Release", "Request", "Response",
           "Store", "WSGIMiddleware", "bind", "bind_async", "current", "current_async", "idempotent", "operation"]
__version__ = "0.2.0"
