// Package nodeselinux is the SELinux of the node that virt-handler runs on: what it
// says of a launcher's process, the context that a program is run under, and the
// labels of files.
//
// It acts through the kernel's interfaces. Package selinux knows what a context means;
// the callers know what they make or label. On a node without SELinux there is no
// Node, and nothing of this is read or written.
package nodeselinux

import (
	"errors"
	"fmt"
	"os"

	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/selinux"
)

// Kernel is the kernel's interface, as far as it is used.
type Kernel interface {
	// Known reports whether this kernel has SELinux at all.
	Known() (bool, error)
	// Own is the context of the calling thread.
	Own() (string, error)
	// OfProcess is the context of a process.
	OfProcess(pid int) (string, error)
	// OfFile is the label of a file.
	OfFile(path string) (string, error)
	// SetExec sets the context of what the calling thread executes next.
	SetExec(context string) error
	// SetFile sets the label of a file.
	SetFile(path, label string) error
}

// Node is a node with SELinux.
type Node struct {
	kernel Kernel
	own    selinux.Context
}

// Find looks whether the node has SELinux; nil without. It has, when the kernel knows
// SELinux and a policy gives virt-handler itself a context: before a policy is loaded,
// and with another security module, a process has words that are none.
func Find(kernel Kernel) (*Node, error) {
	known, err := kernel.Known()
	if err != nil || !known {
		return nil, err
	}
	text, err := kernel.Own()
	if err != nil {
		return nil, nil // the kernel has SELinux built in and does not use it
	}
	own, err := selinux.Parse(text)
	if err != nil {
		return nil, nil // these words are another security module's, or there is no policy
	}
	return &Node{kernel: kernel, own: own}, nil
}

// Launcher is what SELinux knows a launcher by. The zero value is a launcher on a node
// without SELinux: it has no context, and nothing is done for it.
type Launcher struct {
	// known is set on a node with SELinux.
	known bool
	node  *Node
	// Process is the context of virt-launcher, and of the QEMU that it starts.
	Process selinux.Context
	// files is the label of what lies in the pod.
	files string
}

// Launcher asks the kernel for the context of a launcher's process, and for the label
// that the container runtime has given to its files.
func (n *Node) Launcher(peer *podpath.Peer) (Launcher, error) {
	text, err := n.kernel.OfProcess(peer.PID)
	if err != nil {
		return Launcher{}, fmt.Errorf("reading the SELinux context of virt-launcher (process %d): %w", peer.PID, err)
	}
	// Only a process that still lives has the number to itself.
	if err := peer.Alive(); err != nil {
		return Launcher{}, fmt.Errorf("reading the SELinux context of virt-launcher: %w", err)
	}
	process, err := selinux.Parse(text)
	if err != nil {
		return Launcher{}, fmt.Errorf("reading the SELinux context of virt-launcher (process %d): %w", peer.PID, err)
	}
	l := Launcher{known: true, node: n, Process: process}
	// The root of the container, whose label no process in it can change.
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

// Context is the launcher's context for the VMI's status.
func (l Launcher) Context() string {
	if !l.known {
		return ""
	}
	return l.Process.String()
}

// Apart reports whether the launcher has another context than virt-handler. Where
// containers are given none, they all have the runtime's.
func (l Launcher) Apart() bool { return l.known && l.Process != l.node.own }

// Exec sets the context of what the calling thread executes next to the launcher's.
// The caller must have locked the thread, and end it afterwards: nothing else may be
// executed by it.
func (l Launcher) Exec() error {
	if err := l.node.kernel.SetExec(l.Process.String()); err != nil {
		return fmt.Errorf("setting the SELinux context %s for a program: %w", l.Process, err)
	}
	return nil
}

// LabelFile gives a file of virt-handler's making the label of the launcher's files. A
// file system that takes no labels, since its mount has one for all files, or is NFS,
// has been mounted with what is right for the pod.
func (l Launcher) LabelFile(path string) error {
	err := l.node.kernel.SetFile(path, l.files)
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return fmt.Errorf("labeling a file %s for the launcher: %w", l.files, err)
}

// Files is LabelFile as podpath takes it, nil where nothing is to be labeled.
func (l Launcher) Files() podpath.Labeler {
	if !l.known {
		return nil
	}
	return l.LabelFile
}

// fileSystems is where the kernel lists the file systems that it knows.
const fileSystems = "/proc/filesystems"

func knows(list string) (bool, error) {
	data, err := os.ReadFile(list)
	if err != nil {
		return false, fmt.Errorf("asking the kernel whether it has SELinux: %w", err)
	}
	return hasLine(data, "nodev\tselinuxfs"), nil
}
