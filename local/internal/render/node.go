package render

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	proxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/podnetwork"
)

// Paths on a node. They are the usual ones, where privileged pods expect them; mounts lead to the
// node's own folder.
const (
	KubeletRoot      = "/var/lib/kubelet"
	ContainerdRoot   = "/var/lib/containerd"
	ContainerdState  = "/run/containerd"
	ContainerdSocket = "/run/containerd/containerd.sock"
	CNIConfig        = "/etc/cni/net.d"
	CNIBin           = "/opt/cni/bin"
	// CNINetworks is for networks whose definitions have no configuration.
	CNINetworks = "/etc/cni/net.d/multus/net.d"

	// PauseImage holds a pod's namespaces open.
	PauseImage = "drydock.dev/pause:1"
	// DNSImage is CoreDNS.
	DNSImage = "drydock.dev/coredns:1"
)

// Containerd returns a node's configuration.
func Containerd(f host.Facts, runc string) string {
	return fmt.Sprintf(`version = 3
root = %q
state = %q

[timeouts]
  # The defaults are 5 s and 2 s. When nothing answers in time, the container is killed.
  "io.containerd.timeout.shim.load" = "30s"
  "io.containerd.timeout.task.state" = "10s"

[grpc]
  address = %q

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  discard_unpacked_layers = false

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %q

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = %t
  max_container_log_line_size = 65536
  # Workers that fill block claims are not root.
  device_ownership_from_security_context = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [%q]
  conf_dir = %q

[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = %q
  SystemdCgroup = false
`, ContainerdRoot, ContainerdState, ContainerdSocket, PauseImage, !f.SysResource, CNIBin, CNIConfig, runc)
}

// CNI returns the network configuration of a node. Pod addresses are routed inside the cluster and masqueraded by the
// host. Multus, at the given path, connects a pod with secondary networks, with the credentials of the node's kubelet
// (decision 410). The last plugin waits until the pod's NetworkPolicies are enforced (decision 650).
func CNI(c layout.Cluster, node string, mtu int, multus string) string {
	bridge := map[string]any{
		"type": "bridge", "bridge": PodBridge, "isDefaultGateway": true, "hairpinMode": true,
		"ipMasq": false, "mtu": mtu,
		"ipam": map[string]any{
			"type":    "host-local",
			"dataDir": "/run/cni-ipam", // a restarted node has no pods with addresses
			"ranges":  [][]map[string]string{{{"subnet": c.NodePodNet(node).String()}}},
		},
	}
	portmap := map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "snat": true}
	chooser := map[string]any{
		"type": podnetwork.Program, "capabilities": map[string]bool{podnetwork.Annotations: true},
		"own": bridge, "multusProgram": multus,
		"multus": map[string]any{
			"type": "multus", "kubeconfig": c.Config("kubelet-" + node + ".kubeconfig"),
			"confDir": CNINetworks, "binDir": CNIBin, "cniDir": "/run/multus",
			"namespaceIsolation": true,
		},
	}
	announcer := map[string]any{"type": podnetwork.Program, "policies": PoliciesFolder}
	data, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0", "name": "drydock", "plugins": []any{chooser, portmap, announcer},
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encoding constants: %v", err)) // maps of strings can't fail
	}
	return string(data) + "\n"
}

// Kubelet returns a node's configuration.
func Kubelet(c layout.Cluster, f host.Facts, node string) (string, error) {
	return toYAML(kubeletv1beta1.KubeletConfiguration{
		TypeMeta:                 metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		Address:                  c.NodeIP(node).String(),
		Authentication:           kubeletv1beta1.KubeletAuthentication{Anonymous: kubeletv1beta1.KubeletAnonymousAuthentication{Enabled: ptr.To(false)}, X509: kubeletv1beta1.KubeletX509Authentication{ClientCAFile: c.PKI("ca.crt")}},
		TLSCertFile:              c.PKI("kubelet-" + node + ".crt"),
		TLSPrivateKeyFile:        c.PKI("kubelet-" + node + ".key"),
		HealthzBindAddress:       "127.0.0.1",
		ContainerRuntimeEndpoint: "unix://" + ContainerdSocket,
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               c.NodeCgroup(node),
		FailCgroupV1:             ptr.To(false),
		FailSwapOn:               ptr.To(false),
		OOMScoreAdj:              ptr.To(oomScore(f)),
		ClusterDomain:            "cluster.local",
		ClusterDNS:               []string{c.DNSIP().String()},
		ResolverConfig:           ptr.To(c.Node(node, "resolv.conf")),
		// A single user would only wait for rate limits.
		KubeAPIQPS: ptr.To[int32](200), KubeAPIBurst: 400,
		EventRecordQPS:      ptr.To[int32](0),
		RegistryPullQPS:     ptr.To[int32](0),
		SerializeImagePulls: ptr.To(false),
		// A component of Drydock that crashes often must be back soon.
		CrashLoopBackOff: kubeletv1beta1.CrashLoopBackOffConfig{MaxContainerRestartPeriod: &metav1.Duration{Duration: 5 * time.Second}},
		// A lease of ten seconds is renewed every 2.5 s; see --node-monitor-grace-period.
		NodeLeaseDurationSeconds:  10,
		NodeStatusUpdateFrequency: metav1.Duration{Duration: 5 * time.Second},
		NodeStatusReportFrequency: metav1.Duration{Duration: time.Minute},
		// SyncFrequency stays at a minute, because each sync of a pod with an image volume costs an event; package
		// podsync syncs pods whose claims have grown. The machine's owner watches the disk space: the kubelet must not
		// delete loaded images, which it can't pull again.
		ImageGCHighThresholdPercent:      ptr.To[int32](100),
		ImageGCLowThresholdPercent:       ptr.To[int32](99),
		EvictionHard:                     map[string]string{"memory.available": "64Mi", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
		EvictionPressureTransitionPeriod: metav1.Duration{Duration: 10 * time.Second},
		EnforceNodeAllocatable:           []string{"pods"},
		MaxPods:                          250,
		CPUManagerPolicy:                 CPUManagerPolicy(f),
		KubeReserved:                     reserved(f),
	})
}

// CPUManagerPolicy returns the policy of the nodes' CPU managers: containers may have CPUs of their own if one is left for
// the others.
func CPUManagerPolicy(f host.Facts) string {
	if f.CPUs < 2 {
		return "none"
	}
	return "static"
}

// The static policy keeps as many whole CPUs for all containers as are reserved; pods may request almost all of their time.
func reserved(f host.Facts) map[string]string {
	if CPUManagerPolicy(f) == "none" {
		return nil
	}
	return map[string]string{"cpu": "10m"}
}

func oomScore(f host.Facts) int32 {
	if f.SysResource {
		return -999
	}
	return 0
}

// KubeletFlags returns the settings that exist only as flags.
func KubeletFlags(c layout.Cluster, node string) []string {
	return []string{
		"--config=" + c.Node(node, "kubelet.yaml"),
		"--kubeconfig=" + c.Config("kubelet-"+node+".kubeconfig"),
		"--root-dir=" + KubeletRoot,
		"--cert-dir=" + KubeletRoot + "/pki",
		"--hostname-override=" + node,
		"--node-ip=" + c.NodeIP(node).String(),
	}
}

// Proxy returns a node's kube-proxy configuration.
func Proxy(c layout.Cluster, f host.Facts, node string) (string, error) {
	cfg := proxyv1alpha1.KubeProxyConfiguration{
		TypeMeta:           metav1.TypeMeta{APIVersion: "kubeproxy.config.k8s.io/v1alpha1", Kind: "KubeProxyConfiguration"},
		HostnameOverride:   node,
		BindAddress:        c.NodeIP(node).String(),
		HealthzBindAddress: "127.0.0.1:10256",
		MetricsBindAddress: "127.0.0.1:10249",
		Mode:               proxyv1alpha1.ProxyMode(f.ProxyMode()),
		DetectLocalMode:    "ClusterCIDR",
		ClusterCIDR:        c.PodNet().String(),
		OOMScoreAdj:        ptr.To(oomScore(f)),
		// A network namespace can't change the host's connection table. Zero leaves it unchanged.
		Conntrack: proxyv1alpha1.KubeProxyConntrackConfiguration{
			MaxPerCore: ptr.To[int32](0), Min: ptr.To[int32](0),
			TCPEstablishedTimeout: &metav1.Duration{}, TCPCloseWaitTimeout: &metav1.Duration{},
		},
	}
	cfg.ClientConnection.Kubeconfig = c.Config("proxy.kubeconfig")
	return toYAML(cfg)
}

// ResolvConf returns the resolv.conf for pods with the node's DNS, such as CoreDNS.
func ResolvConf(f host.Facts) string {
	var b strings.Builder
	for _, server := range f.Nameservers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	return b.String()
}

func toYAML(v any) (string, error) {
	data, err := yaml.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encoding %T: %w", v, err)
	}
	return string(data), nil
}
