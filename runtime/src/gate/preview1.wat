(; What is left of WASI for a harness, as the adapter that turns a core module into a component.

   A harness sees no file, no argument, no variable and no socket, so nearly every function answers
   with an error. What is left goes to four functions of the host that take plain numbers and one
   list of bytes: no handles, streams or resources cross the sandbox's border.

   Error codes: 0 success, 8 bad descriptor, 52 not supported, 76 not capable. ;)
(module
  (import "env" "memory" (memory 0))
  (import "whale:sandbox/system@0.1.0" "write" (func $write (param i32 i32 i32)))
  (import "whale:sandbox/system@0.1.0" "random" (func $random (result i64)))
  (import "whale:sandbox/system@0.1.0" "clock" (func $clock (param i32) (result i64)))
  (import "whale:sandbox/system@0.1.0" "exit" (func $exit (param i32)))

  ;; No arguments and no environment.
  (func (export "args_sizes_get") (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))
  (func (export "environ_sizes_get") (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))
  (func (export "args_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "environ_get") (param i32 i32) (result i32) (i32.const 0))

  ;; Clocks and randomness come from the episode's seed.
  (func (export "clock_res_get") (param $id i32) (param $to i32) (result i32)
    (i64.store (local.get $to) (i64.const 1000))
    (i32.const 0))
  (func (export "clock_time_get") (param $id i32) (param $precision i64) (param $to i32) (result i32)
    (i64.store (local.get $to) (call $clock (local.get $id)))
    (i32.const 0))
  (func (export "random_get") (param $to i32) (param $length i32) (result i32)
    (local $end i32) (local $bits i64)
    (local.set $end (i32.add (local.get $to) (local.get $length)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $to) (local.get $end)))
        (local.set $bits (call $random))
        (if (i32.ge_u (i32.sub (local.get $end) (local.get $to)) (i32.const 8))
          (then
            (i64.store (local.get $to) (local.get $bits))
            (local.set $to (i32.add (local.get $to) (i32.const 8))))
          (else
            (i64.store8 (local.get $to) (local.get $bits))
            (local.set $to (i32.add (local.get $to) (i32.const 1)))))
        (br $next)))
    (i32.const 0))

  ;; Standard streams: input is empty, output goes to capped sinks.
  (func (export "fd_fdstat_get") (param $fd i32) (param $to i32) (result i32)
    (if (i32.gt_u (local.get $fd) (i32.const 2)) (then (return (i32.const 8))))
    (i64.store (local.get $to) (i64.const 2)) ;; a character device, without flags
    (i64.store offset=8 (local.get $to) (i64.const 66)) ;; may be read and written
    (i64.store offset=16 (local.get $to) (i64.const 0))
    (i32.const 0))
  (func (export "fd_read")
    (param $fd i32) (param $buffers i32) (param $count i32) (param $read i32) (result i32)
    (if (local.get $fd) (then (return (i32.const 8))))
    (i32.store (local.get $read) (i32.const 0))
    (i32.const 0))
  (func (export "fd_write")
    (param $fd i32) (param $buffers i32) (param $count i32) (param $written i32) (result i32)
    (local $sum i32) (local $length i32)
    (if (i32.gt_u (i32.sub (local.get $fd) (i32.const 1)) (i32.const 1))
      (then (return (i32.const 8))))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $length (i32.load offset=4 (local.get $buffers)))
        (call $write (local.get $fd) (i32.load (local.get $buffers)) (local.get $length))
        (local.set $sum (i32.add (local.get $sum) (local.get $length)))
        (local.set $buffers (i32.add (local.get $buffers) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $written) (local.get $sum))
    (i32.const 0))

  (func (export "proc_exit") (param $code i32)
    (call $exit (local.get $code))
    (unreachable))
  (func (export "sched_yield") (result i32) (i32.const 0))

  ;; Everything else is not there.
  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_allocate") (param i32 i64 i64) (result i32) (i32.const 8))
  (func (export "fd_close") (param i32) (result i32) (i32.const 8))
  (func (export "fd_datasync") (param i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) (i32.const 8))
  (func (export "fd_filestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_renumber") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_sync") (param i32) (result i32) (i32.const 8))
  (func (export "fd_tell") (param i32 i32) (result i32) (i32.const 8))
  (func (export "path_create_directory") (param i32 i32 i32) (result i32) (i32.const 76))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (i32.const 76))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (i32.const 76))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 76))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 76))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 76))
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) (i32.const 76))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 76))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) (i32.const 76))
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) (i32.const 76))
  (func (export "poll_oneoff") (param i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "proc_raise") (param i32) (result i32) (i32.const 52))
  (func (export "sock_accept") (param i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_recv") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_send") (param i32 i32 i32 i32 i32) (result i32) (i32.const 52))
  (func (export "sock_shutdown") (param i32 i32) (result i32) (i32.const 52)))
