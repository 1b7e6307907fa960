package rig

import "syscall"

// endsWithParent has the kernel kill the child on any death of its parent.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
