// Package host checks the machine and reports missing requirements, with the command that installs them. It must
// change nothing, except that it loads kernel modules to see whether they exist; it removes all that its trials
// create.
package host

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/prerequisites"
)

// BridgeFilter is the kernel's switch for translating packets within a bridge.
const BridgeFilter = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// BridgeFilter6 is the kernel's switch for filtering IPv6 packets within a bridge.
const BridgeFilter6 = "/proc/sys/net/bridge/bridge-nf-call-ip6tables"

// Facts are the facts of the machine.
type Facts struct {
	Root bool
	// CgroupV2 means that /sys/fs/cgroup is the unified hierarchy.
	CgroupV2 bool
	// SysResource means that an OOM score may be lowered.
	SysResource bool
	// CPUs is the number of the machine's CPUs.
	CPUs int
	// BridgeFilter means that packets between ports of a bridge can be translated.
	BridgeFilter bool
	// A cluster executes these missing programs.
	Absent []prerequisites.Program
	// KernelMajor and KernelMinor decide kube-proxy's mode.
	KernelMajor, KernelMinor int
	// Nameservers are the host's, if pods can reach them.
	Nameservers []string
}

// Gather collects this machine's facts.
func Gather() (Facts, error) {
	f := Facts{Root: os.Geteuid() == 0, CPUs: runtime.NumCPU(), Absent: prerequisites.Missing(prerequisites.Run)}
	var err error
	if f.CgroupV2, err = unifiedCgroups(); err != nil {
		return f, err
	}
	self, err := procfs.Self()
	if err != nil {
		return f, fmt.Errorf("reading our capabilities: %w", err)
	}
	if f.SysResource, err = hasCapability(self, unix.CAP_SYS_RESOURCE); err != nil {
		return f, err
	}
	_, err = os.Stat(BridgeFilter)
	f.BridgeFilter = err == nil || exec.Command("modprobe", "br_netfilter").Run() == nil
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return f, fmt.Errorf("asking for the kernel's version: %w", err)
	}
	f.KernelMajor, f.KernelMinor = kernelVersion(unix.ByteSliceToString(uts.Release[:]))
	f.Nameservers = nameservers()
	return f, nil
}

func unifiedCgroups() (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return false, fmt.Errorf("looking at /sys/fs/cgroup: %w", err)
	}
	return fs.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

// ClusterSpace is the disk space for a cluster and Drydock's images.
const ClusterSpace = 2 << 30

// Missing lists everything that prevents a cluster in dir, with remedies.
func Missing(dir string) ([]string, error) {
	facts, err := Gather()
	if err != nil {
		return nil, err
	}
	missing := facts.Missing()
	if facts.Root {
		missing = append(missing, Try(dir)...)
	}
	return append(missing, TakenPorts()...), nil
}

// Missing lists the unmet requirements, with remedies.
func (f Facts) Missing() []string {
	if !f.Root {
		return []string{"root is needed to make network, mount and PID namespaces: run the command with sudo"}
	}
	var missing []string
	if len(f.Absent) > 0 {
		var names []string
		for _, p := range f.Absent {
			names = append(names, p.String())
		}
		missing = append(missing, fmt.Sprintf("%s: not installed; install with: %s", strings.Join(names, ", "),
			strings.Join(prerequisites.InstallCommand(prerequisites.Packages(f.Absent)), " ")))
	}
	if !f.BridgeFilter {
		missing = append(missing, "the kernel has no br_netfilter (a pod reaches a service whose pod is on its own node by it): install the distribution's kernel and modules, then modprobe br_netfilter")
	}
	return missing
}

// ProxyMode returns kube-proxy's mode: nftables needs Linux 5.13.
func (f Facts) ProxyMode() string {
	if f.KernelMajor > 5 || f.KernelMajor == 5 && f.KernelMinor >= 13 {
		return "nftables"
	}
	return "iptables"
}

func hasCapability(process procfs.Proc, bit int) (bool, error) {
	status, err := process.NewStatus()
	if err != nil {
		return false, fmt.Errorf("reading our capabilities: %w", err)
	}
	return status.CapEff&(1<<bit) != 0, nil
}

func kernelVersion(release string) (major, minor int) {
	if n, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil || n != 2 {
		return 0, 0 // unknown: treated as old
	}
	return major, minor
}

// Pods can't reach loopback nameservers. systemd-resolved keeps the real ones in its own file.
func nameservers() []string {
	for _, path := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		found := parseNameservers(f)
		_ = f.Close() // read only
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

func parseNameservers(r io.Reader) []string {
	var found []string
	for s := bufio.NewScanner(r); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if server := fields[1]; !strings.HasPrefix(server, "127.") && server != "::1" {
			found = append(found, server)
		}
	}
	return found
}
