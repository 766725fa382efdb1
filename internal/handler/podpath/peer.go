package podpath

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a unix socket. The descriptors belong to it alone, even if its PID is
// reused.
type Peer struct {
	PID   int
	Root  *Dir
	NetNS *os.File
	pidfd int
}

// OpenPeer opens the process that listens at conn's other end (decision 040).
func OpenPeer(conn *net.UnixConn) (*Peer, error) {
	pid, err := PeerPID(conn)
	if err != nil {
		return nil, err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("opening process %d: %w", pid, err)
	}
	peer := &Peer{PID: pid, pidfd: pidfd}
	if err := peer.open(); err != nil {
		peer.Close()
		return nil, err
	}
	// A process that is alive now was alive while its files were opened: they don't belong to a later one with its
	// PID.
	if err := peer.Alive(); err != nil {
		peer.Close()
		return nil, err
	}
	return peer, nil
}

// Alive returns an error unless the process is alive and its PID has not been reused.
func (p *Peer) Alive() error {
	if err := unix.PidfdSendSignal(p.pidfd, 0, nil, 0); err != nil {
		return fmt.Errorf("process %d ended meanwhile: %w", p.PID, err)
	}
	return nil
}

func (p *Peer) open() error {
	proc := fmt.Sprintf("/proc/%d", p.PID)
	root, err := OpenRoot(filepath.Join(proc, "root"))
	if err != nil {
		return err
	}
	p.Root = root
	p.NetNS, err = os.Open(filepath.Join(proc, "ns/net"))
	if err != nil {
		return fmt.Errorf("opening the network namespace of process %d: %w", p.PID, err)
	}
	return nil
}

const maxEnvironment = 1 << 20

// Environment returns the process's initial environment, as NAME=value.
func (p *Peer) Environment() ([]string, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", p.PID))
	if err != nil {
		return nil, fmt.Errorf("opening the environment of process %d: %w", p.PID, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxEnvironment))
	if err != nil {
		return nil, fmt.Errorf("reading the environment of process %d: %w", p.PID, err)
	}
	if err := p.Alive(); err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00"), nil
}

// LetLock raises the limit of locked memory of the process and its future children, in bytes.
func (p *Peer) LetLock(bytes uint64) error {
	var is unix.Rlimit
	if err := unix.Prlimit(p.PID, unix.RLIMIT_MEMLOCK, nil, &is); err != nil {
		return fmt.Errorf("asking how much memory process %d may lock: %w", p.PID, err)
	}
	if is.Cur >= bytes {
		return nil
	}
	if err := unix.Prlimit(p.PID, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: bytes, Max: max(is.Max, bytes)}, nil); err != nil {
		return fmt.Errorf("letting process %d lock %d bytes of memory: %w", p.PID, bytes, err)
	}
	return p.Alive()
}

// Kill sends SIGKILL to the process.
func (p *Peer) Kill() error {
	err := unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing process %d: %w", p.PID, err)
	}
	return nil
}

// Close closes the descriptors.
func (p *Peer) Close() {
	release(p.pidfd)
	if p.Root != nil {
		p.Root.Close()
	}
	if p.NetNS != nil {
		_ = p.NetNS.Close()
	}
}

// BelongsTo checks that the process is in a cgroup of the pod.
func (p *Peer) BelongsTo(podUID string) error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
	if err != nil {
		return fmt.Errorf("reading the cgroups of process %d: %w", p.PID, err)
	}
	if !cgroupsOfPod(string(data), podUID) {
		return fmt.Errorf("process %d is at the other end of a socket of pod %s, but is in no cgroup of it", p.PID, podUID)
	}
	return nil
}

// The kubelet's cgroupfs driver writes pod<uid>, its systemd driver pod<uid with underscores>.slice.
func cgroupsOfPod(cgroups, podUID string) bool {
	return strings.Contains(cgroups, "pod"+podUID) ||
		strings.Contains(cgroups, "pod"+strings.ReplaceAll(podUID, "-", "_"))
}

// PeerPID returns the PID of the listener at conn's other end.
func PeerPID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("reading a socket's peer: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("reading a socket's peer: %w", err)
	}
	if credErr != nil {
		return 0, fmt.Errorf("reading a socket's peer: %w", credErr)
	}
	if cred.Pid == 0 {
		return 0, errors.New("reading a socket's peer: its process is outside of this PID namespace; virt-handler needs hostPID")
	}
	return int(cred.Pid), nil
}
