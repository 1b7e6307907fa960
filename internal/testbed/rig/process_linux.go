package rig

import "syscall"

// endsWithParent has the kernel kill the child when the parent dies, however
// that happens.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
