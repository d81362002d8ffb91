-- Operations of one kind that were asked for in the same turn: one call of the script for all of them is a third cheaper. Each has
-- its key, and as many of ARGV as the others; each is decided, and refused, by itself (all.lua).
local function decide(key, said, more)
local now = now
