// Package baseline starts QEMU without Kubernetes and without Drydock: the baseline
// that VMIs are compared with.
//
// It uses the arguments of a VMI's QEMU, read from the process, with other paths and
// QEMU's own network, since the tap belongs to the pod. It runs beside the pods, with
// the same share of the CPUs (share): otherwise a busy machine would slow down one of
// the two more than the other.
//
// It must not measure; it returns the time at which the guest was started.
package baseline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/internal/qemu/qmp"
)

// Machine is a VMI's machine that can be started as the baseline.
type Machine struct {
	dir string
	// args are those of the VMI's QEMU, as they are there.
	args  []string
	share *share
	// size is the disk's in bytes, if each guest writes into an overlay of its own; 0 for a disk
	// that is written to itself, as that of a claim is.
	size int64
}

// Where a VMI's QEMU has its files.
const (
	privateDir = "/var/run/kubevirt/"
	guestDisk  = "/var/run/kubevirt-volumes/root/disk/guest.qcow2"
	overlay    = "/var/run/kubevirt-ephemeral-disks/root.qcow2"
	claimDisk  = "/var/run/kubevirt-volumes/root/disk.img"
)

// Learn looks how the QEMU in a launcher pod is started, and copies its disk; what the guest writes into
// a claim must stand still meanwhile. The VMI is not needed afterwards. Forget removes what Learn
// has made.
func Learn(ctx context.Context, pod *corev1.Pod) (*Machine, error) {
	processes, err := proc.OfPod(string(pod.UID))
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		if IsQEMU(p) {
			return learn(ctx, p)
		}
	}
	return nil, fmt.Errorf("looking for QEMU in pod %s: it is not there", pod.Name)
}

func learn(ctx context.Context, p proc.Process) (*Machine, error) {
	dir, err := os.MkdirTemp("", "qemu")
	if err != nil {
		return nil, fmt.Errorf("making a folder for QEMU: %w", err)
	}
	m := &Machine{dir: dir, args: p.Args[1:]}
	if onClaim(m.args) {
		err = m.copyDisk(p, claimDisk)
	} else {
		err = errors.Join(m.copyDisk(p, guestDisk), m.readSize(ctx))
	}
	if err != nil {
		return nil, errors.Join(err, m.Forget())
	}
	if m.share, err = shareLike(p.PID); err != nil {
		return nil, errors.Join(err, m.Forget())
	}
	return m, nil
}

// IsQEMU reports whether a process is one.
func IsQEMU(p proc.Process) bool { return strings.HasPrefix(p.Name(), "qemu-system-") }

// onClaim reports whether a machine's disk is in a claim.
func onClaim(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, claimDisk) })
}

func (m *Machine) copyDisk(p proc.Process, disk string) error {
	// /var/run is a link there, which would lead to this machine's own /run.
	from, err := os.Open(fmt.Sprintf("/proc/%d/root%s", p.PID, strings.TrimPrefix(disk, "/var")))
	if err != nil {
		return fmt.Errorf("opening the guest's disk: %w", err)
	}
	defer from.Close()
	to, err := os.Create(m.Path(filepath.Base(disk)))
	if err != nil {
		return fmt.Errorf("copying the guest's disk: %w", err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("copying the guest's disk: %w", err)
	}
	return nil
}

// ownPaths are QEMU's arguments with the disks and the sockets in other folders, the tap
// exchanged, and without virt-launcher's monitor, which it inherits.
func ownPaths(args []string, disks, sockets string) []string {
	replace := strings.NewReplacer(
		guestDisk, filepath.Join(disks, "guest.qcow2"), claimDisk, filepath.Join(disks, "disk.img"),
		overlay, filepath.Join(disks, "root.qcow2"), privateDir, sockets+"/")
	var out []string
	for _, arg := range args {
		if strings.Contains(arg, "launcher0") {
			out = out[:len(out)-1]
			continue
		}
		if len(out) > 0 && out[len(out)-1] == "-netdev" {
			arg = `{"type":"user","id":"host-default"}`
		}
		out = append(out, replace.Replace(arg))
	}
	return out
}

func (m *Machine) readSize(ctx context.Context) error {
	info, err := exec.CommandContext(ctx, "qemu-img", "info", "--output=json", m.Path("guest.qcow2")).Output()
	if err != nil {
		return fmt.Errorf("asking for the size of the guest's disk: %w", err)
	}
	var size struct {
		Bytes int64 `json:"virtual-size"`
	}
	if err := json.Unmarshal(info, &size); err != nil {
		return fmt.Errorf("asking for the size of the guest's disk: %w", err)
	}
	m.size = size.Bytes
	return nil
}

// Path is where the machine has a file.
func (m *Machine) Path(name string) string { return filepath.Join(m.dir, name) }

// Forget removes the machine's files and its share.
func (m *Machine) Forget() error {
	err := os.RemoveAll(m.dir)
	if m.share != nil {
		err = errors.Join(err, m.share.remove())
	}
	if err != nil {
		return fmt.Errorf("removing what QEMU of the baseline needed: %w", err)
	}
	return nil
}

// Guest is a machine that runs.
type Guest struct {
	// Began is the moment before QEMU was started.
	Began time.Time
	// dir has its sockets.
	dir  string
	qemu *exec.Cmd
}

// Start starts QEMU with a fresh overlay, if its guest writes into one. The caller ends it by Stop.
func (m *Machine) Start(ctx context.Context) (*Guest, error) {
	if m.size > 0 {
		create := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", m.Path("root.qcow2"), fmt.Sprint(m.size))
		if out, err := create.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("making an overlay: %w: %s", err, out)
		}
	}
	return m.start(ctx, m.dir)
}

// StartTwin starts a QEMU on the same disks that waits for the guest of another one. name is its own
// among the twins. The caller ends it by Stop.
func (m *Machine) StartTwin(ctx context.Context, name string) (*Guest, error) {
	dir := m.Path(name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for QEMU: %w", err)
	}
	return m.start(ctx, dir, "-incoming", "defer", "-S")
}

// start starts QEMU with its sockets in a folder, and with more arguments.
func (m *Machine) start(ctx context.Context, sockets string, more ...string) (*Guest, error) {
	qemu := m.share.command(ctx, "qemu-system-x86_64", append(ownPaths(m.args, m.dir, sockets), more...))
	qemu.Stderr = os.Stderr
	g := &Guest{Began: time.Now(), dir: sockets, qemu: qemu}
	if err := qemu.Start(); err != nil {
		return nil, fmt.Errorf("starting the baseline: %w", err)
	}
	return g, nil
}

// Stop ends QEMU.
func (g *Guest) Stop() {
	_ = g.qemu.Process.Kill()
	_ = g.qemu.Wait() // it was killed
}

// PID is QEMU's process.
func (g *Guest) PID() int { return g.qemu.Process.Pid }

// Console connects to the serial console as soon as there is one. Whoever asks
// closes the connection.
func (g *Guest) Console(ctx context.Context) (net.Conn, error) {
	var conn net.Conn
	err := cluster.Eventually(ctx, "QEMU's serial console", func(context.Context) (bool, error) {
		var err error
		conn, err = net.Dial("unix", filepath.Join(g.dir, "serial0.sock"))
		return err == nil, err
	})
	return conn, err
}

// Monitor connects to QEMU's monitor as soon as there is one. events, which may be nil, is called with
// every event in its order. The caller closes the connection.
func (g *Guest) Monitor(ctx context.Context, events func(qmp.Event)) (*qmp.Client, error) {
	var monitor *qmp.Client
	err := cluster.Eventually(ctx, "QEMU's monitor", func(ctx context.Context) (bool, error) {
		var err error
		monitor, err = qmp.Dial(ctx, filepath.Join(g.dir, "qmp.sock"), events)
		return err == nil, err
	})
	return monitor, err
}
