if mine and open and (now >= lease_until or ARGV[9] == '1') then return finish(2) end
return again(mine and state == 2 and 7 or 9)
