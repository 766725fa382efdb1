// Package baseline starts QEMU without Kubernetes and Drydock, as the baseline for VMIs.
//
// It uses a VMI's QEMU arguments, with other paths and QEMU's user network, because the tap belongs to the pod.
// It runs in a cgroup beside the pods' with the same CPU share: a busy machine would slow down one of the two
// more.
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

// Machine is a VMI's machine, ready to start as the baseline.
type Machine struct {
	dir   string
	args  []string
	share *share
	// size is the disk's, in bytes, for overlays; 0 if guests write to the disk itself, like a claim.
	size int64
}

const (
	privateDir = "/var/run/kubevirt/"
	guestDisk  = "/var/run/kubevirt-volumes/root/disk/guest.qcow2"
	overlay    = "/var/run/kubevirt-ephemeral-disks/root.qcow2"
	claimDisk  = "/var/run/kubevirt-volumes/root/disk.img"
)

// Learn reads the arguments of a pod's QEMU and copies its disk, to which the guest must not write meanwhile. The
// VMI is not needed afterwards. Forget removes the files.
func Learn(ctx context.Context, pod *corev1.Pod) (*Machine, error) {
	processes, err := proc.OfPod(string(pod.UID))
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		if IsQEMU(p) {
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
	}
	return nil, fmt.Errorf("looking for QEMU in pod %s: it is not there", pod.Name)
}

// IsQEMU reports whether a process is QEMU.
func IsQEMU(p proc.Process) bool { return strings.HasPrefix(p.Name(), "qemu-system-") }

func onClaim(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, claimDisk) })
}

func (m *Machine) copyDisk(p proc.Process, disk string) error {
	// /var/run is a link in the container, which would lead to the host's /run.
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

// virt-launcher's monitor is dropped, whose descriptor is inherited.
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

// Path returns the path of one of the machine's files.
func (m *Machine) Path(name string) string { return filepath.Join(m.dir, name) }

// Forget removes the machine's files and cgroup.
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

// Guest is a running machine.
type Guest struct {
	// Began is before QEMU's start.
	Began time.Time
	dir   string
	qemu  *exec.Cmd
}

// Start starts QEMU, with a new overlay if it uses one. The caller must Stop it.
func (m *Machine) Start(ctx context.Context) (*Guest, error) {
	if m.size > 0 {
		create := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", m.Path("root.qcow2"), fmt.Sprint(m.size))
		if out, err := create.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("making an overlay: %w: %s", err, out)
		}
	}
	return m.start(ctx, m.dir)
}

// StartTwin starts a QEMU on the same disks that waits for a migration. name must be unique. The caller must Stop
// it.
func (m *Machine) StartTwin(ctx context.Context, name string) (*Guest, error) {
	dir := m.Path(name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for QEMU: %w", err)
	}
	return m.start(ctx, dir, "-incoming", "defer", "-S")
}

func (m *Machine) start(ctx context.Context, sockets string, more ...string) (*Guest, error) {
	args := append(ownPaths(m.args, m.dir, sockets), more...)
	enter := []string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(m.share.dir, "cgroup.procs"), "qemu-system-x86_64"}
	qemu := exec.CommandContext(ctx, "sh", append(enter, args...)...)
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
	_ = g.qemu.Wait() // killed
}

// PID returns QEMU's process ID.
func (g *Guest) PID() int { return g.qemu.Process.Pid }

// Console connects to the serial console. The caller closes the connection.
func (g *Guest) Console(ctx context.Context) (net.Conn, error) {
	var conn net.Conn
	err := cluster.Eventually(ctx, "QEMU's serial console", func(context.Context) (bool, error) {
		var err error
		conn, err = net.Dial("unix", filepath.Join(g.dir, "serial0.sock"))
		return err == nil, err
	})
	return conn, err
}

// Monitor connects to QEMU's monitor as soon as it exists. events, which may be nil, is called for every
// event in order. The caller closes the connection.
func (g *Guest) Monitor(ctx context.Context, events func(qmp.Event)) (*qmp.Client, error) {
	var monitor *qmp.Client
	err := cluster.Eventually(ctx, "QEMU's monitor", func(ctx context.Context) (bool, error) {
		var err error
		monitor, err = qmp.Dial(ctx, filepath.Join(g.dir, "qmp.sock"), events)
		return err == nil, err
	})
	return monitor, err
}
