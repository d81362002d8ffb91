if mine and open and (now >= lease_until or ARGV[9] == '1') then return finish(3) end
if mine and state == 3 then return again(6) end
return again(mine and state == 2 and 7 or 9)
