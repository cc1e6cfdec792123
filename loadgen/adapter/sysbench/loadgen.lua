-- Runs another sysbench script as an open loop and tells of each event as it ends.
--
-- sysbench's own --rate keeps a queue of events and ends the whole run when it is full, that is
-- when the server stalls; and it tells times only as one percentile per interval. So this
-- script plans the events itself: each thread has its own Poisson arrivals, and does what is
-- due as soon as it can. sysbench's latency statistics keep their meaning: the event alone.
--
-- Settings come from the environment, events go to file descriptor 3, one line each:
--   c RESPONSE SERVICE   completed; microseconds from the intended start, from the real start
--   f RESPONSE ERROR     failed, and sysbench ends; ERROR is what the server or the script says, if anything
--   r ERROR              tried again after an error sysbench ignores; ERROR is the server's number

require(os.getenv("LOADGEN_SCRIPT"))

local ffi = require("ffi")

ffi.cdef[[
typedef struct { long sec, nsec; } loadgen_timespec;
int clock_gettime(int clock, loadgen_timespec *now);
int nanosleep(const loadgen_timespec *wanted, loadgen_timespec *left);
int access(const char *path, int mode);
]]

local rate = tonumber(os.getenv("LOADGEN_RATE"))
local stop = os.getenv("LOADGEN_STOP")

local timespec = ffi.new("loadgen_timespec")

local function now()
   ffi.C.clock_gettime(1, timespec) -- CLOCK_MONOTONIC
   return tonumber(timespec.sec) + tonumber(timespec.nsec) / 1e9
end

local function stopping()
   return ffi.C.access(stop, 0) == 0
end

-- Waits until due; false if the run is to end. A long wait checks for that now and then.
local function wait(due)
   while true do
      if stopping() then return false end
      local left = due - now()
      if left <= 0 then return true end
      left = math.min(left, 0.1)
      ffi.C.nanosleep(ffi.new("loadgen_timespec", math.floor(left), left % 1 * 1e9), nil)
   end
end

function thread_run(thread_id)
   -- Lines are shorter than a pipe's atomic write, so those of the threads do not mix.
   local out = assert(io.open("/dev/fd/3", "w"))
   out:setvbuf("line")
   local per_thread = rate / sysbench.opt.threads
   math.randomseed(math.floor(now() * 1e6) % 2147483647 + thread_id * 7919)
   local due = now()

   while ffi.C.sb_more_events(thread_id) do
      if per_thread > 0 then
         due = due - math.log(1 - math.random()) / per_thread
         if not wait(due) then break end
      else
         if stopping() then break end
         due = now()
      end

      local started = now()
      ffi.C.sb_event_start(thread_id)
      local success, ret
      repeat
         success, ret = pcall(event, thread_id)
         if not success then
            if type(ret) == "table" and ret.errcode == sysbench.error.RESTART_EVENT then
               out:write(string.format("r %s\n", tostring(ret.sql_errno or 0)))
               if sysbench.hooks.before_restart_event then
                  sysbench.hooks.before_restart_event(ret)
               end
            else
               local words = type(ret) == "table" and (ret.sql_errmsg or ret.errcode) or ret
               words = string.sub(string.gsub(tostring(words or ""), "%s+", " "), 1, 1000)
               out:write(string.format("f %.0f %s\n", (now() - due) * 1e6, words))
               error(ret, 2)
            end
         end
      until success
      if ret then break end
      ffi.C.sb_event_stop(thread_id)
      local ended = now()
      out:write(string.format("c %.0f %.0f\n", (ended - due) * 1e6, (ended - started) * 1e6))
   end
   out:close()
end
