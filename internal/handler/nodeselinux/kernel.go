package nodeselinux

import (
	"errors"

	"github.com/opencontainers/selinux/go-selinux"
)

// Real is virt-handler's kernel.
type Real struct{}

// Known implements Kernel.
func (Real) Known() (bool, error) { return knows(fileSystems) }

// Own implements Kernel.
func (Real) Own() (string, error) { return selinux.CurrentLabel() }

// OfProcess implements Kernel.
func (Real) OfProcess(pid int) (string, error) {
	context, err := selinux.PidLabel(pid)
	if err == nil && context == "" {
		return "", errors.New("the process has ended, or the kernel does not report its context")
	}
	return context, err
}

// OfFile implements Kernel.
func (Real) OfFile(path string) (string, error) { return selinux.FileLabel(path) }

// SetExec implements Kernel.
func (Real) SetExec(context string) error { return selinux.SetExecLabel(context) }

// SetFile implements Kernel.
func (Real) SetFile(path, label string) error { return selinux.SetFileLabel(path, label) }
