//go:build !linux

package rig

import "syscall"

// endsWithParent leaves children to their owners: only Linux ends them with
// their parent.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
