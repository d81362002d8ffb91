"""An MCP server, by the SDK for Python, whose tool pays: server.py PORT LEDGER [json]. Each payment is a line of the ledger."""
import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("bank")


@server.tool()
async def pay(order: str, amount: int, then: str = "") -> str:
    """Pays. With `then` the process is gone after the payment and before the answer, as by kill -9, or stays without one."""
    with open(sys.argv[2], "a", encoding="utf-8") as ledger:
        ledger.write(f"{order} {amount}\n")
        ledger.flush()
    if then == "die":
        os.kill(os.getpid(), 9)
    if then == "stay":
        await asyncio.Event().wait()
    return f"paid {amount} for {order}"


@server.tool(annotations=ToolAnnotations.model_validate({"readOnlyHint": True}))
def look(order: str) -> int:
    """How often it was paid."""
    with open(sys.argv[2], encoding="utf-8") as ledger:
        return sum(line.split()[0] == order for line in ledger)


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response=len(sys.argv) > 3)
