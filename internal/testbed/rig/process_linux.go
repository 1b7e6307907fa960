package rig

import "syscall"

// endsWithParent makes the kernel kill the child when its parent dies in any way.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
