-- The record as it is, and the time. Not preceded by common.lua: nothing is decided here.
local clock = redis.call('TIME')
return {0, clock[1] * 1000 + math.floor(clock[2] / 1000), redis.call('GET', KEYS[1]) or ''}
