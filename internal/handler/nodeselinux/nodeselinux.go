// Package nodeselinux is the SELinux of virt-handler's node: the context of a launcher's process, the context in
// which a program is executed, and the labels of files.
//
// It acts through the kernel's interfaces. Package selinux interprets contexts, and the callers decide which files to
// create or label. Without SELinux there is no Node, and nothing is read or written.
package nodeselinux

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/pod/selinux"
)

// Kernel is the used part of the kernel's interface.
type Kernel interface {
	Known() (bool, error)
	Own() (string, error)
	OfProcess(pid int) (string, error)
	OfFile(path string) (string, error)
	// SetExec sets the context of the calling thread's next exec.
	SetExec(context string) error
	SetFile(path, label string) error
}

// Node is a node with SELinux.
type Node struct {
	kernel Kernel
	own    selinux.Context
}

// Find returns the Node, nil for a node without SELinux: the kernel must know SELinux, and a policy give virt-handler
// a context.
func Find(kernel Kernel) (*Node, error) {
	known, err := kernel.Known()
	if err != nil || !known {
		return nil, err
	}
	text, err := kernel.Own()
	if err != nil {
		return nil, nil // the kernel has SELinux built in, but not enabled
	}
	own, err := selinux.Parse(text)
	if err != nil {
		return nil, nil // another security module's text, or no policy is loaded
	}
	return &Node{kernel: kernel, own: own}, nil
}

// Launcher is a launcher's SELinux context. The zero value is for a node without SELinux.
type Launcher struct {
	known   bool
	node    *Node
	Process selinux.Context
	files   string
}

// Launcher reads the context of a launcher's process, and the label of its files.
func (n *Node) Launcher(peer *podpath.Peer) (Launcher, error) {
	text, err := n.kernel.OfProcess(peer.PID)
	if err != nil {
		return Launcher{}, fmt.Errorf("reading the SELinux context of virt-launcher (process %d): %w", peer.PID, err)
	}
	// Otherwise its PID may have been reused.
	if err := peer.Alive(); err != nil {
		return Launcher{}, fmt.Errorf("reading the SELinux context of virt-launcher: %w", err)
	}
	process, err := selinux.Parse(text)
	if err != nil {
		return Launcher{}, fmt.Errorf("reading the SELinux context of virt-launcher (process %d): %w", peer.PID, err)
	}
	l := Launcher{known: true, node: n, Process: process}
	// No process in the container can change its root's label.
	err = peer.Root.Named(func(path string) error {
		l.files, err = n.kernel.OfFile(path)
		return err
	})
	if err != nil {
		return Launcher{}, fmt.Errorf("reading the SELinux label of the launcher's root: %w", err)
	}
	if _, err := selinux.Parse(l.files); err != nil {
		return Launcher{}, fmt.Errorf("reading the SELinux label of the launcher's root: %w", err)
	}
	return l, nil
}

// Context returns the launcher's context for the VMI's status, "" without SELinux.
func (l Launcher) Context() string {
	if !l.known {
		return ""
	}
	return l.Process.String()
}

// Apart reports whether the context differs from virt-handler's: containers may share the runtime's.
func (l Launcher) Apart() bool { return l.known && l.Process != l.node.own }

// Exec sets the context of the next exec of the calling thread, which must be locked, execute nothing else and end.
func (l Launcher) Exec() error {
	if err := l.node.kernel.SetExec(l.Process.String()); err != nil {
		return fmt.Errorf("setting the SELinux context %s for a program: %w", l.Process, err)
	}
	return nil
}

// LabelFile gives virt-handler's file the label of the launcher's files. A file system without labels was mounted
// with the right one for the pod (NFS, or one label for all files).
func (l Launcher) LabelFile(path string) error {
	err := l.node.kernel.SetFile(path, l.files)
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return fmt.Errorf("labeling a file %s for the launcher: %w", l.files, err)
}

// Files returns LabelFile as a podpath.Labeler, nil without SELinux.
func (l Launcher) Files() podpath.Labeler {
	if !l.known {
		return nil
	}
	return l.LabelFile
}

const fileSystems = "/proc/filesystems"

func knows(list string) (bool, error) {
	data, err := os.ReadFile(list)
	if err != nil {
		return false, fmt.Errorf("asking the kernel whether it has SELinux: %w", err)
	}
	for line := range bytes.Lines(data) {
		if string(bytes.TrimSuffix(line, []byte("\n"))) == "nodev\tselinuxfs" {
			return true, nil
		}
	}
	return false, nil
}
