local r = redis.call('GET', key)
