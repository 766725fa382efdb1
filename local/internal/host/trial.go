package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/cgroup"
	"drydock.dev/local/internal/loop"
)

// trial uses a feature of the kernel as a cluster does, in separate namespaces.
type trial struct {
	// why is the cluster's use of the feature.
	feature, why, remedy string
	try                  func(dir string) error
}

const distributionKernel = "use the distribution's kernel with its modules"

var trials = []trial{
	{"overlayfs", "containers are put together with it", "the data folder must lie on ext4, XFS or Btrfs, and the kernel have the module overlay", tryOverlay},
	{"loop devices", "volumes are files on them", "/dev/loop-control must be there, and the kernel have the module loop", tryLoop},
	{"bridges and veth pairs", "they connect nodes and pods", distributionKernel + " bridge and veth, version 4.18 or later", tryLinks},
	{"TUN", "a guest's network card is a tap", "/dev/net/tun must be there, and the kernel have the module tun", tryTun},
	{"nf_tables", "kube-proxy and the way out of the cluster use it", distributionKernel + " nf_tables, nft_chain_nat, nft_masq and nft_ct", tryNftables},
	{"iptables", "the CNI plugin portmap uses it for host ports", distributionKernel + " nft_compat and xt_comment", tryIptables},
	{"PID namespaces", "every node and pod has one", "a container that this machine may be must be privileged", tryPIDs},
}

// Try uses each kernel feature that a cluster in dir needs, and reports failures. Its changes vanish with the
// thread's namespaces. It needs root.
func Try(dir string) []string {
	found := make(chan []string)
	go func() {
		// Nothing else may run in this thread's namespaces: it stays locked and ends with this goroutine.
		runtime.LockOSThread()
		found <- tryAll(existing(dir), enterNamespaces, trials)
	}()
	return append(<-found, tryCgroups()...)
}

func tryAll(dir string, enter func() error, trials []trial) []string {
	if err := enter(); err != nil {
		return []string{fmt.Sprintf("mount and network namespaces can't be made (every node has its own): %v; a container that this machine may be must be privileged", err)}
	}
	var failed []string
	for _, t := range trials {
		if err := t.try(dir); err != nil {
			failed = append(failed, fmt.Sprintf("%s did not work (%s): %v; %s", t.feature, t.why, err, t.remedy))
		}
	}
	return failed
}

func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func enterNamespaces() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

// The overlay's folders are on the data's file system.
func tryOverlay(dir string) (err error) {
	scratch, err := os.MkdirTemp(dir, ".drydock-trial-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	folder := func(name string) string { return filepath.Join(scratch, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(folder(name), 0o700); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder("lower"), folder("upper"), folder("work"))
	if err := unix.Mount("overlay", folder("merged"), "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting an overlay in %s: %w", dir, err)
	}
	return errors.Join(os.WriteFile(filepath.Join(folder("merged"), "file"), nil, 0o600), unix.Unmount(folder("merged"), 0))
}

func tryLoop(dir string) error {
	file, err := os.CreateTemp(dir, ".drydock-trial-*")
	if err != nil {
		return err
	}
	defer file.Close()
	err = file.Truncate(1 << 20)
	var device *os.File
	if err == nil {
		device, err = loop.Attach(file.Name(), loop.Mode{Tag: "drydock-trial", AutoClear: true})
	}
	if err == nil {
		err = device.Close()
	}
	return errors.Join(err, os.Remove(file.Name()))
}

func tryLinks(string) error {
	links, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer links.Close()
	if err := links.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "trial"}}); err != nil {
		return fmt.Errorf("making a bridge: %w", err)
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "trial.1"}, PeerName: "trial.2"}
	if err := links.LinkAdd(pair); err != nil {
		return fmt.Errorf("making a veth pair: %w", err)
	}
	bridge, err := links.LinkByName("trial")
	if err != nil {
		return fmt.Errorf("finding the bridge: %w", err)
	}
	if err := errors.Join(links.LinkSetMaster(pair, bridge), links.LinkSetIsolated(pair, true)); err != nil {
		return fmt.Errorf("making a port that is isolated from others: %w", err)
	}
	return nil
}

func tryTun(string) error {
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer tun.Close()
	request, err := unix.NewIfreq("trial.tap")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(int(tun.Fd()), unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("making a tap: %w", err)
	}
	return nil
}

func tryNftables(string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader("table ip trial {\n chain nat {\n type nat hook postrouting priority srcnat;\n ip daddr 192.0.2.1 masquerade\n }\n}\n" +
		"table inet trial {\n chain raw {\n type filter hook prerouting priority raw;\n iifname lan notrack\n }\n}\n")
	return run(cmd)
}

func tryIptables(string) error {
	return run(exec.Command("iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-m", "comment", "--comment", "trial", "-j", "RETURN"))
}

func tryPIDs(string) error {
	cmd := exec.Command("nft", "--version")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	return run(cmd)
}

// run runs a program. It ignores a missing program, which Missing reports.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	if err != nil && len(out) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return err
}

func tryCgroups() []string {
	unified, err := unifiedCgroups()
	if err == nil {
		var tree cgroup.Tree
		if tree, err = cgroup.Open(unified); err == nil {
			err = tree.Try(fmt.Sprintf("/drydock-trial-%d", os.Getpid()))
		}
	}
	if err != nil {
		return []string{fmt.Sprintf("cgroups did not work (the kubelet limits pods with them): %v; mount cgroup v2 at /sys/fs/cgroup, or v1's hierarchies below it, writable", err)}
	}
	return nil
}
