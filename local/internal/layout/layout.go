// Package layout defines the folders, addresses, interface names and cgroups of an embedded cluster. It owns the
// cluster's record on disk: it must start no process and touch no kernel object.
package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	// DefaultDir is the default data folder.
	DefaultDir = "/var/lib/drydock"
	// DefaultName is the default name of a cluster.
	DefaultName = "drydock"

	// MaxNodes follows from the address plan: node i has the pod network 10.N.(64+i).0/24, and the
	// service range begins at 10.N.128.0.
	MaxNodes = 63

	// DIR/run/supervisor.sock must fit the 108 bytes of a socket address.
	maxDir = 80
)

// The ports of the control plane, all at HostIP. The last two are the defaults of the controller
// manager and the scheduler.
const (
	EtcdPort              = 2379
	EtcdPeerPort          = 2380
	APIServerPort         = 6443
	ControllerManagerPort = 10257
	SchedulerPort         = 10259
)

// Ports are the ports on which no other program may listen at all addresses of the host.
var Ports = []int{EtcdPort, EtcdPeerPort, APIServerPort, ControllerManagerPort, SchedulerPort}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// Cluster is an embedded cluster: everything else derives from these fields.
type Cluster struct {
	Name string `json:"name"`
	// Dir is the data folder. The record contains it so that a copy of the record in another folder
	// does not own that folder.
	Dir string `json:"dir,omitempty"`
	// Alone means that the folder was empty at first, so all entries with a cluster's names are the cluster's.
	Alone bool `json:"alone,omitempty"`
	// Net is the second octet of 10.Net.0.0/16.
	Net   int      `json:"net"`
	Nodes []string `json:"nodes"`
}

// Check rejects names and folders beyond the limits of kernel objects.
func Check(name, dir string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("checking the cluster name %q: it must be 1 to 20 lower-case letters, digits and inner hyphens", name)
	}
	if filepath.Clean(dir) == "/" {
		return errors.New("checking the data folder: it can't be /: name a folder for the cluster with --dir")
	}
	if !filepath.IsAbs(dir) || len(dir) > maxDir {
		return fmt.Errorf("checking the data folder %q: it must be an absolute path of at most %d bytes (a Unix socket lives in it)", dir, maxDir)
	}
	return nil
}

// NodeName returns the name of the i-th node, counted from zero.
func NodeName(i int) string { return fmt.Sprintf("node%d", i+1) }

// ID distinguishes equal names in different folders.
func (c Cluster) ID() string { return c.Name + "-" + c.hash()[:6] }

func (c Cluster) hash() string {
	sum := sha256.Sum256([]byte(c.Name + "\x00" + c.Dir))
	return hex.EncodeToString(sum[:])
}

// Index is -1 if the cluster has no such node.
func (c Cluster) Index(node string) int {
	for i, n := range c.Nodes {
		if n == node {
			return i
		}
	}
	return -1
}

// Find returns an error that lists the cluster's nodes if it has no such node.
func (c Cluster) Find(node string) error {
	if c.Index(node) < 0 {
		return fmt.Errorf("cluster %s has no node %s; it has %s", c.Name, node, strings.Join(c.Nodes, ", "))
	}
	return nil
}

func (c Cluster) addr(third, fourth int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(c.Net), byte(third), byte(fourth)})
}

// One /16 per cluster: .0.0/24 machines, .64.0/18 pods, .128.0/20 services.

// Subnet has every address of the cluster.
func (c Cluster) Subnet() netip.Prefix { return Subnet(c.Net) }

// Subnet returns a range by its second octet.
func Subnet(net int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(net), 0, 0}), 16)
}

// MachineNet is the network of the host's bridge and the nodes.
func (c Cluster) MachineNet() netip.Prefix { return netip.PrefixFrom(c.addr(0, 0), 24) }

// HostIP is the control plane's address, on the bridge.
func (c Cluster) HostIP() netip.Addr { return c.addr(0, 1) }

// NodeIP is the address of a node on the bridge.
func (c Cluster) NodeIP(node string) netip.Addr { return c.addr(0, 11+c.Index(node)) }

// PodNet contains the pod networks of all nodes.
func (c Cluster) PodNet() netip.Prefix { return netip.PrefixFrom(c.addr(64, 0), 18) }

// NodePodNet is the pod network of one node.
func (c Cluster) NodePodNet(node string) netip.Prefix {
	return netip.PrefixFrom(c.addr(64+c.Index(node), 0), 24)
}

// ServiceNet is the range of service addresses.
func (c Cluster) ServiceNet() netip.Prefix { return netip.PrefixFrom(c.addr(128, 0), 20) }

// KubernetesIP is the address of the service kubernetes.
func (c Cluster) KubernetesIP() netip.Addr { return c.addr(128, 1) }

// DNSIP is the address of the service kube-dns.
func (c Cluster) DNSIP() netip.Addr { return c.addr(128, 10) }

// APIServer is the URL of the API server.
func (c Cluster) APIServer() string { return fmt.Sprintf("https://%s:%d", c.HostIP(), APIServerPort) }

// Interface names have at most 15 bytes, hence the hash.

// Bridge is the host's bridge.
func (c Cluster) Bridge() string { return "dd" + c.hash()[:6] }

// Veth is the host's end of a node's pair.
func (c Cluster) Veth(node string) string { return fmt.Sprintf("%s.%d", c.Bridge(), c.Index(node)+1) }

// Table is the host's nftables table.
func (c Cluster) Table() string { return "drydock-" + c.ID() }

// Cgroup is the path of the cgroup of all processes of the cluster, including pods.
func (c Cluster) Cgroup() string { return "/drydock/" + c.ID() }

// ControlCgroup is the cgroup of the supervisor and the control plane.
func (c Cluster) ControlCgroup() string { return c.Cgroup() + "/control" }

// NodeCgroup is the root cgroup of a node; the kubelet creates the pods' cgroups in it.
func (c Cluster) NodeCgroup(node string) string { return c.Cgroup() + "/" + node }

// NodeSystemCgroup is the cgroup of a node's own processes.
func (c Cluster) NodeSystemCgroup(node string) string { return c.NodeCgroup(node) + "/system" }

// LoopTag is the tag of the cluster's loop devices, or with a node of that node's.
func (c Cluster) LoopTag(node string) string {
	if node == "" {
		return "drydock:" + c.ID()
	}
	return "drydock:" + c.ID() + "/" + node
}

// Folders and files.

func (c Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// Record is the file of the Cluster.
func (c Cluster) Record() string { return c.path(record) }

// Kubeconfig is the administrator's.
func (c Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// PKI is a file in the folder of certificates.
func (c Cluster) PKI(file string) string { return c.path("pki", file) }

// Etcd is etcd's data folder.
func (c Cluster) Etcd() string { return c.path("etcd") }

// Config is a rendered configuration or a kubeconfig.
func (c Cluster) Config(file string) string { return c.path("config", file) }

// Log is a control plane component's.
func (c Cluster) Log(component string) string { return c.path("logs", component+".log") }

// AuditLog is written by the API server.
func (c Cluster) AuditLog() string { return c.path("logs", "audit.log") }

// Images is the folder of the loaded image archives.
func (c Cluster) Images() string { return c.path("images") }

// RunDir has files that end with the cluster's processes.
func (c Cluster) RunDir() string { return c.path("run") }

// Socket is the supervisor's socket.
func (c Cluster) Socket() string { return c.path("run", "supervisor.sock") }

// StorageSocket is the socket of the CSI controller service.
func (c Cluster) StorageSocket() string { return c.path("run", "csi.sock") }

// QuiesceSocket is the socket on which a node's CSI driver freezes volumes. The controller reaches
// it in the host's file system.
func (c Cluster) QuiesceSocket(node string) string { return c.path("run", node+".sock") }

// SupervisorLock is held by the supervisor as long as it lives.
func (c Cluster) SupervisorLock() string { return c.path("run", "supervisor.lock") }

// Shared is at /srv/shared on every node.
func (c Cluster) Shared() string { return c.path("shared") }

// Node is a path in a node's folder.
func (c Cluster) Node(node string, elem ...string) string {
	return c.path(append([]string{"nodes", node}, elem...)...)
}

// SnapshotDefinitions is the file with the CRDs of the snapshot API, beside our programs.
const SnapshotDefinitions = "volumesnapshot-crds.yaml"

// Multus is the program, beside ours, that connects pods to secondary networks.
const Multus = "multus"

// SharedDisk is the name of the disk that all nodes share.
const SharedDisk = "shared"

// Disks maps each disk to its volumes' folder. The paths are the same on the nodes, and the kernel reports them
// to every process.
func (c Cluster) Disks() map[string]string {
	disks := map[string]string{SharedDisk: filepath.Join(c.Shared(), "csi")}
	for _, node := range c.Nodes {
		disks[node] = c.Node(node, "srv", "csi")
	}
	return disks
}

// NodeLog is the log file of a component on a node.
func (c Cluster) NodeLog(node, component string) string { return c.Log(node + "-" + component) }
