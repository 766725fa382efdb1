package start

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
	"strings"
	"time"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/proc"
)

// byHand is a QEMU that is started without Kubernetes and without Drydock, with
// the arguments that a VMI's had: only the paths are others, and its network is
// QEMU's own, since the tap belongs to the pod.
type byHand struct {
	dir  string
	args []string
	// size is the disk's, in bytes.
	size int64
}

// Where a VMI's QEMU has its files.
const (
	privateDir = "/var/run/kubevirt/"
	guestDisk  = "/var/run/kubevirt-volumes/root/disk/guest.qcow2"
	overlay    = "/var/run/kubevirt-ephemeral-disks/root.qcow2"
)

// learn starts a VMI, which also warms everything up, and looks how its QEMU is
// started.
func learn(ctx context.Context, c *cluster.Cluster, ns string) (*byHand, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	vmi := cluster.VMI(ns, "learn")
	_, pod, err := observeStart(ctx, c, vmi)
	if err != nil {
		return nil, err
	}
	processes, err := proc.OfPod(string(pod.UID))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "qemu")
	if err != nil {
		return nil, fmt.Errorf("making a folder for QEMU: %w", err)
	}
	hand := &byHand{dir: dir}
	for _, p := range processes {
		if isQEMU(p) {
			err = hand.take(ctx, p)
		}
	}
	if err == nil && hand.args == nil {
		err = fmt.Errorf("looking for QEMU in pod %s: it is not there", pod.Name)
	}
	return hand, errors.Join(err, c.DeleteAndAwait(ctx, vmi))
}

// take copies the guest's disk and changes the arguments to find it.
func (h *byHand) take(ctx context.Context, p proc.Process) error {
	// /var/run is a link there, which would lead to this machine's own /run.
	from, err := os.Open(fmt.Sprintf("/proc/%d/root%s", p.PID, strings.TrimPrefix(guestDisk, "/var")))
	if err != nil {
		return fmt.Errorf("opening the guest's disk: %w", err)
	}
	defer from.Close()
	to, err := os.Create(h.path("guest.qcow2"))
	if err != nil {
		return fmt.Errorf("copying the guest's disk: %w", err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("copying the guest's disk: %w", err)
	}
	h.args = ownPaths(p.Args[1:], h.dir)
	return h.readSize(ctx)
}

// ownPaths are QEMU's arguments with the files in another folder, the tap
// exchanged, and without virt-launcher's monitor, which it inherits.
func ownPaths(args []string, dir string) []string {
	replace := strings.NewReplacer(guestDisk, filepath.Join(dir, "guest.qcow2"), overlay, filepath.Join(dir, "root.qcow2"), privateDir, dir+"/")
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

func (h *byHand) readSize(ctx context.Context) error {
	info, err := exec.CommandContext(ctx, "qemu-img", "info", "--output=json", h.path("guest.qcow2")).Output()
	if err != nil {
		return fmt.Errorf("asking for the size of the guest's disk: %w", err)
	}
	var size struct {
		Bytes int64 `json:"virtual-size"`
	}
	if err := json.Unmarshal(info, &size); err != nil {
		return fmt.Errorf("asking for the size of the guest's disk: %w", err)
	}
	h.size = size.Bytes
	return nil
}

func (h *byHand) path(name string) string { return filepath.Join(h.dir, name) }

func (h *byHand) forget() { _ = os.RemoveAll(h.dir) }

// start starts QEMU with a fresh overlay and takes the time to the guest's first
// line.
func (h *byHand) start(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	create := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", h.path("root.qcow2"), fmt.Sprint(h.size))
	if out, err := create.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("making an overlay: %w: %s", err, out)
	}
	qemu := exec.Command("qemu-system-x86_64", h.args...)
	qemu.Stderr = os.Stderr
	began := time.Now()
	if err := qemu.Start(); err != nil {
		return 0, fmt.Errorf("starting QEMU: %w", err)
	}
	defer func() {
		_ = qemu.Process.Kill()
		_ = qemu.Wait() // it was killed
	}()
	conn, err := h.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	ended, err := awaitLine(ctx, conn)
	return ended.Sub(began), err
}

// dial connects to the serial console as soon as there is one.
func (h *byHand) dial(ctx context.Context) (net.Conn, error) {
	var conn net.Conn
	err := cluster.Eventually(ctx, "QEMU's serial console", func(context.Context) (bool, error) {
		var err error
		conn, err = net.Dial("unix", h.path("serial0.sock"))
		return err == nil, err
	})
	return conn, err
}
