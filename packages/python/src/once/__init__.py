"""An operation takes effect exactly once: the effect and its record are one transaction of your PostgreSQL."""
from .message import Answered, Request, Response
from .operation import (AsyncBound, AsyncOperation, Bound, Operation, bind, bind_async, current, current_async, operation)
from .web import ASGIMiddleware, WSGIMiddleware, idempotent

__all__ = ["ASGIMiddleware", "Answered", "AsyncBound", "AsyncOperation", "Bound", "Operation", "Request", "Response",
           "WSGIMiddleware", "bind", "bind_async", "current", "current_async", "idempotent", "operation"]
__version__ = "0.2.0"
