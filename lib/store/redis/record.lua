#!lua flags=allow-oom
-- Decides one event, on one record or on several: what lib/core/rules.c decides, as Redis can run it. tests/redis/test_rules.c
-- compares the two in every situation. docs/format.md describes the bytes of a record.
--
--   redis-cli --eval record.lua RECORD , get
--   redis-cli --eval record.lua RECORD... [MARK] , claim ASKED [FINGERPRINTS]... SECRETS
--   redis-cli --eval record.lua RECORD... , EVENT GIVEN [PAYLOAD]...
--   redis-cli --eval record.lua RECORD... [MARK] DICTIONARIES , with PLACE EVENT ...
--
-- RECORD is the key of a record. Claims and completions can come in groups: one call for all of them is a third cheaper. Each has
-- its key and the same number of arguments as the others, and is decided, or refused, by itself.
--
-- ASKED is the record as a first claim leaves it; in place of its four times it has the lease, and 1 if replicas are waited for.
-- FINGERPRINTS are further ones that match, of 37 bytes each (secret, mode, hash). SECRETS is the mark of the caller's record
-- secret, compared with the one at the key MARK; if it is empty there is no key MARK, and nothing is compared.
--
-- `with`: what is given was compressed. PLACE is where the list at the key DICTIONARIES has the dictionary (4 bytes), and its
-- length and id as in the list (6 bytes). If the store has lost or retired it, the error is DICTIONARY and nothing is
-- changed: a record never names a dictionary that is not there when it is written.
--
-- GIVEN is: options (1: replicas are waited for, 2: force), newest schema that the caller can read, kind (+ 4: compressed) and
-- status of the payload, epoch, claim id, lease or ttl in ms, cause. A lease or ttl of 0 is the record's own; the ttl of a release
-- is how long to remember an operation that ended before any effect, 0 if it may have had one. A reap needs only the first two
-- bytes.
--
-- The answer is {outcome, now, bytes}; outcome -1: this is not a record. The bytes are the whole record if it has a payload that
-- the caller does not know yet, else its first 122: envelope, secret, scope, fingerprint, ttl. A change that was just made has a
-- shorter answer: such 122 bytes alone, in which the time of the change is now. The answer to a first claim is the time alone,
-- that to an erasure has the record as it was.
--
-- Records of schema 1, from versions before 0.2, are taken for what they would be in schema 2, and are stored as that when they
-- change.
--
-- The first line lets a change that ends or keeps a claim run when Redis is out of memory. Claims are sent without it, because a
-- new record must be refused then; so is get, which must also run where nothing may be written.
--
-- One function and no more: Redis creates the functions of a script again for each call, which costs more than they save.
local sub, byte, pack, unpack = string.sub, string.byte, struct.pack, struct.unpack
local event, time = ARGV[1], redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)

local function decide(key, given, more)
  local PENDING, COMPLETED, FAILED, UNKNOWN, HOLD, RESPONSE, ERASED = 1, 2, 3, 4, 2, 16, 48
  local RUN, REPLAY, BUSY, MISMATCH, IS_UNKNOWN, DONE, ALREADY, LOST, REFUSED, MINE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 32
  local MAGIC, SCHEMA, ENVELOPE, TTL_MAX = 79, 2, '<BBBBBBI2I4I4c16I8I8I8I8', 2 ^ 48 - 1
  local now, newest, outcome, waits = clock, byte(given, 2)

  -- Read it. Most claims are the first of their key: they write without reading.
  local record, lease
  if event == 'claim' then
    lease, waits = unpack('<I8I8', given, 33)
    waits = waits == 1
    record = redis.pcall('SET', key, pack('<c32I8I8I8I8', given, now + lease, now, 0, now) .. sub(given, 65), 'NX', 'GET')
    if not record then return now end
    if type(record) == 'table' then
      -- A server that takes no new records still answers from those that it has; not one that is no longer the master.
      if sub(record.err, 1, 8) == 'READONLY' then return record end
      local refusal = record
      record = redis.call('GET', key)
      if not record then return refusal end
    end
  else
    record = redis.call('GET', key)
  end

  -- Take it apart. A state that is none of the four would be granted again. `form`: mode of the fingerprint, 16 times the kind of
  -- the payload, 64 if that is compressed, 128 if there is a ttl: of a completed record it is mostly the time from the change to
  -- the end, and left out.
  local magic, schema, state, recover, flags, form, status, epoch, lease_ms, claim, lease_until, changed, expires, created
  local expired, is_old
  if record then
    if #record < 64 then return {-1, now, ''} end
    magic, schema, state, recover, flags, form, status, epoch, lease_ms, claim, lease_until, changed, expires, created =
      unpack(ENVELOPE, record)
    if magic ~= MAGIC or schema < 1 or state < 1 or state > 4 or recover > 2 or epoch < 1 then return {-1, now, ''} end
    if schema == 1 and newest >= 2 then
      if #record < 133 then return {-1, now, ''} end
      local secret, mode, kind, old_status, mac, scope, ttl, _, key_len = unpack('<c4BBI2c32c16I8I4B', record, 65)
      form, status, is_old, schema = mode % 16 + kind % 4 * 16 + 128, old_status, true, SCHEMA
      record = pack(ENVELOPE, MAGIC, SCHEMA, state, recover, flags, form, status, epoch, lease_ms, claim, lease_until, changed,
        expires, created) .. secret .. scope .. mac .. pack('<I6', math.min(ttl, TTL_MAX))
        .. sub(record, 133, 133 + key_len) .. '\0\0\0' .. sub(record, 134 + key_len)
    end
    local kind = form % 64 - form % 16
    if schema <= newest and (#record < 120 or form < 128 and state ~= COMPLETED or form >= 128 and #record < 126
        or (kind == RESPONSE or kind == ERASED and state ~= FAILED) ~= (state == COMPLETED)) then
      return {-1, now, ''}
    end
    -- A clock that went back must not shorten or revive anything.
    if changed > now then now = changed end
    -- An expired record counts as none, whether or not Redis has removed it yet.
    if (state == COMPLETED or state == FAILED) and expires ~= 0 and now >= expires and schema <= newest then
      expired, record = true, false
    end
  end
  -- flags: 1 unknown because the lease ran out, 2 an earlier epoch ended in doubt, 4 a release may have been after an effect
  local by_lease, doubted, had_effect
  if record then by_lease, doubted, had_effect = flags % 2, flags % 4 >= 2, flags % 8 >= 4 end

  if event == 'claim' then
    local id = sub(given, 17, 32)
    if not record then
      redis.call('SET', key, pack('<c32I8I8I8I8', given, now + lease, now, 0, now) .. sub(given, 65))
      return now
    end
    local secret, mode, mac = sub(record, 65, 68), form % 16, sub(record, 85, 116)
    local same = mac == sub(given, 85, 116) and secret == sub(given, 65, 68) and mode == byte(given, 6) % 16
    for i = 1, more and #more or 0, 37 do
      if sub(more, i + 5, i + 36) == mac and sub(more, i, i + 3) == secret and byte(more, i + 4) == mode then same = true end
    end
    local mine, live, stricter = claim == id, now < lease_until, byte(given, 4)
    if recover > stricter then stricter = recover end
    if schema > newest then
      outcome = BUSY
    elseif not same then
      outcome = MISMATCH
    elseif state == COMPLETED then
      outcome = REPLAY
    elseif state == FAILED then
      outcome = mine and LOST or nil
    elseif state == PENDING and mine then
      outcome = RUN
    elseif state == PENDING and live then
      outcome = BUSY
    elseif state == PENDING and stricter == HOLD then
      -- Whatever was its cause until now: it is that the lease is over.
      local head = pack(ENVELOPE, MAGIC, schema, UNKNOWN, recover, flags - by_lease + 1, form, status, epoch, lease_ms, claim,
        lease_until, now, expires, created)
      record = head .. sub(record, 65)
      if is_old then redis.call('SET', key, record) else redis.call('SETRANGE', key, 0, head) end
      outcome = IS_UNKNOWN
    elseif state == UNKNOWN and mine then
      outcome = by_lease == 1 and MINE or IS_UNKNOWN
    elseif state == UNKNOWN and stricter == HOLD then
      outcome = IS_UNKNOWN
    elseif state == UNKNOWN and live then
      outcome = BUSY
    end
    if not outcome then
      -- Granted again: the next epoch, without payload and cause. The fingerprint, the scope and the key stay.
      flags = flags - by_lease
      if state ~= FAILED and not doubted then flags = flags + 2 end
      -- A release that is kept for its whole ttl may have been after an effect.
      if state == FAILED and not had_effect and (expires == 0 or expires >= changed + unpack('<I6', record, 117)) then
        flags = flags + 4
      end
      local head = pack(ENVELOPE, MAGIC, schema, PENDING, stricter, flags, form % 16 + 128, 0, epoch + 1,
        unpack('<I4', given, 13), id, now + lease, now, 0, created) .. sub(record, 65, 116) .. sub(given, 117, 122)
      -- What became of the attempt before, in front of the earlier ones (lib/core/attempts.c). No holder, if that is compressed.
      local key_len, new_len, how, ended, holder, text = byte(record, 123), byte(given, 123), 2, changed, '', ''
      if key_len == 0 and form % 64 < ERASED then key_len = 16 end -- a UUID
      if new_len == 0 then new_len = 16 end
      local about_len, why_len = unpack('<I2B', record, 124 + key_len)
      local about, why_at = sub(record, 127 + key_len, 128 + key_len), 127 + key_len + about_len % 32768
      local why = sub(record, why_at, why_at + why_len - 1)
      if about_len < 32768 and about_len >= 2 and byte(about) == 1 then
        local len = byte(about, 2) % 128
        if len <= 40 and len <= about_len - 2 then holder = sub(record, 129 + key_len, 128 + key_len + len) end
      end
      if state == PENDING or by_lease == 1 then
        how, ended = 0, lease_until
      else
        if state == FAILED then how = 1 end
        text = string.match(why, '^%Z*')
        if text == '' and form % 64 >= 32 and form % 64 < 48 then text = sub(record, why_at + why_len) end
        text = sub(text, 1, 40)
      end
      local attempts, size, count = string.char(7 + #holder + #text, how * 64 + #holder) .. pack('>I6', ended) .. holder .. text
        .. (string.match(why, '%z(.*)') or ''), 0, 0
      while count < 8 do
        local len = byte(attempts, size + 1)
        if not len or len < 7 or size + 1 + len > math.min(#attempts, 254) or len - 7 < byte(attempts, size + 2) % 64 then break end
        size, count = size + 1 + len, count + 1
      end
      redis.call('SET', key, head .. sub(given, 123, 125 + new_len) .. string.char(1 + size) .. sub(given, 127 + new_len) .. '\0'
        .. sub(attempts, 1, size))
      return head
    end
  elseif event == 'reap' then
    -- Redis removes what expired by itself. What is left are abandoned records.
    if expired or (record and schema <= newest and (state == PENDING or state == UNKNOWN) and recover ~= HOLD
        and now >= lease_until + unpack('<I6', record, 117)) then
      redis.call('DEL', key)
      return {DONE, now, ''}
    end
    return {REFUSED, now, ''}
  else
    -- The holder of a claim, or an operator: they name the claim that they know.
    local options, _, kind, new_status, known_epoch, known_claim, ms = unpack('<BBBI2I4c16I8', given)
    local force, same = options >= 2, record and claim == known_claim and epoch == known_epoch
    local newer = record and schema > newest
    local mine = same and not newer
    local open = mine and (state == PENDING or state == UNKNOWN)
    local ended, lasts, to = open and (now >= lease_until or force), nil, nil
    waits = options % 2 == 1
    outcome = newer and BUSY or mine and state == COMPLETED and ALREADY or LOST

    -- `to` is the state that comes of it, `lasts` how long a failed record is kept if that is less than its ttl.
    if event == 'complete' then
      if open then to = COMPLETED end
    elseif event == 'release' then
      -- After an earlier epoch that ended in doubt it is not settled that nothing happened.
      if open then to = doubted and UNKNOWN or FAILED end
      -- Before any effect, as every release before it: two leases are enough.
      if to == FAILED and ms ~= 0 and not had_effect then lasts = math.max(ms, 2 * lease_ms) end
      if mine and state == FAILED then outcome = DONE end
      ms = 0
    elseif event == 'doubt' then
      if open and (state == PENDING or by_lease == 1) then
        to = UNKNOWN
        flags = flags - by_lease
        lease_until = now + (ms ~= 0 and ms or lease_ms)
      elseif open then
        outcome = DONE
      end
    elseif event == 'renew' then
      if open then
        to = state
        lease_until = math.max(lease_until, now + (ms ~= 0 and ms or lease_ms))
      end
    elseif event == 'settle_completed' then
      if ended then to = COMPLETED end
      if outcome == LOST then outcome = REFUSED end
    elseif event == 'settle_failed' then
      if ended then to = FAILED end
      if mine and state == FAILED then outcome = DONE end
      if outcome == LOST then outcome = REFUSED end
    elseif event == 'purge' then
      -- The envelope is enough: a record that a newer version wrote can be removed as well.
      if same and (state == COMPLETED or state == FAILED or force) then
        redis.call('DEL', key)
        return {DONE, now, ''}
      end
      waits, outcome = false, REFUSED
    elseif event == 'erase' then
      -- Key, description, cause and payload go, and nothing else changes: what is erased decides as before.
      if mine and not open then
        local old = record
        record = pack(ENVELOPE, MAGIC, schema, state, recover, flags, form - form % 128 + form % 16 + ERASED, status, epoch,
          lease_ms, claim, lease_until, changed, expires, created) .. sub(record, 65, form < 128 and 116 or 122) .. '\0\0\0\0'
        redis.call('SET', key, record, 'KEEPTTL')
        return {DONE, now, old}
      end
      waits, outcome = false, newer and BUSY or REFUSED
    else
      return {err = 'ERR there is no event ' .. event}
    end

    if to and event == 'renew' then -- another lease; the rest stays
      local head = pack(ENVELOPE, MAGIC, schema, to, recover, flags, form, status, epoch, lease_ms, claim, lease_until, now,
        expires, created)
      if is_old then redis.call('SET', key, head .. sub(record, 65)) else redis.call('SETRANGE', key, 0, head) end
      return head .. sub(record, 65, 122)
    elseif to then -- another state, with this cause and, but for a doubt, this payload
      local ttl, cause, key_len = unpack('<I6', record, 117), sub(given, 34), byte(record, 123)
      if key_len == 0 then key_len = 16 end -- a UUID
      local about_len, cause_len = unpack('<I2B', record, 124 + key_len)
      local about_end = 126 + key_len + about_len % 32768
      local attempts = cause_len > 0 and string.match(sub(record, about_end + 1, about_end + cause_len), '%z(.*)')
      if attempts then -- they stay
        local size, count, most = 0, 0, math.min(#attempts, 254 - #cause)
        while count < 8 do
          local len = byte(attempts, size + 1)
          if not len or len < 7 or size + 1 + len > most or len - 7 < byte(attempts, size + 2) % 64 then break end
          size, count = size + 1 + len, count + 1
        end
        if size > 0 then cause = cause .. '\0' .. sub(attempts, 1, size) end
      end
      if event == 'doubt' then
        more = sub(record, about_end + 1 + cause_len)
      elseif to == UNKNOWN then
        form, status = form % 16 + kind * 16 + 128, new_status
        flags = flags - by_lease
        lease_until = math.min(lease_until, now)
      else
        if ms ~= 0 then ttl = ms end
        form, status = form % 16 + kind * 16 + (to == COMPLETED and 0 or 128), new_status
        flags = 0
        expires = now + (lasts and lasts < ttl and lasts or ttl)
      end
      local head, end_ = pack(ENVELOPE, MAGIC, schema, to, recover, flags, form, status, epoch, lease_ms, claim, lease_until, now,
        expires, created), pack('<I6', ttl)
      local prints = sub(record, 65, 116)
      local bytes = head .. prints .. (to == COMPLETED and '' or end_) .. sub(record, 123, 125 + key_len) .. string.char(#cause)
        .. sub(record, 127 + key_len, about_end) .. cause .. more
      if to == UNKNOWN then
        redis.call('SET', key, bytes)
      else
        redis.call('SET', key, bytes, 'PXAT', expires)
      end
      return head .. prints .. end_
    end
  end

  -- Nothing was changed, or a claim made it unknown.
  if not record then return {outcome, now, ''} end
  if schema > newest then return {outcome, now, sub(record, 1, 64)} end
  -- A write, so that there is something to wait for: an earlier answer may have been lost before the replicas had it.
  if waits and (outcome == RUN or outcome == REPLAY or outcome == DONE or outcome == ALREADY) then
    if expires ~= 0 then
      redis.call('PEXPIREAT', key, expires)
    else
      redis.call('SETRANGE', key, 0, sub(record, 1, 1))
    end
  end
  if outcome == DONE or form % 64 < 16 then return {outcome, now, sub(record, 1, 122)} end
  return {outcome, now, record}
end

if event == 'with' then
  local at, entry = unpack('<I4c6', ARGV[2])
  if redis.pcall('GETRANGE', table.remove(KEYS), at, at + 5) ~= entry then
    return {err = 'DICTIONARY the store does not have it'}
  end
  table.remove(ARGV, 1)
  table.remove(ARGV, 1)
  event = ARGV[1]
end
if event == 'get' then return {0, clock, redis.call('GET', KEYS[1]) or ''} end
if event == 'claim' then
  -- With other secrets than the store's, the same key has another id: it would run under both.
  local mark = table.remove(ARGV)
  if mark ~= '' and redis.call('GET', table.remove(KEYS)) ~= mark then
    return {err = 'SECRET the store has others, or none'}
  end
end
if #KEYS == 1 then return decide(KEYS[1], ARGV[2], ARGV[3]) end
local answers, each = {}, (#ARGV - 1) / #KEYS
for i = 1, #KEYS do
  local at = each * (i - 1) + 2
  local is_good, answer = pcall(decide, KEYS[i], ARGV[at], each > 1 and ARGV[at + 1] or nil)
  if not is_good and type(answer) ~= 'table' then answer = {err = answer} end
  answers[i] = answer
end
return answers
