// Package render renders the configuration of every component: command lines, configuration files and manifests.
// Each is a pure function of the cluster's layout and the host's facts. It must do no I/O.
package render

import (
	"fmt"

	"drydock.dev/local/internal/layout"
)

// Etcd listens only on the bridge, with mutual TLS and a separate authority, because access to etcd bypasses
// RBAC.
func Etcd(c layout.Cluster) []string {
	client := fmt.Sprintf("https://%s:%d", c.HostIP(), layout.EtcdPort)
	peer := fmt.Sprintf("https://%s:%d", c.HostIP(), layout.EtcdPeerPort)
	return []string{
		"--name=" + c.Name,
		"--data-dir=" + c.Etcd(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + c.Name + "=" + peer,
		"--cert-file=" + c.PKI("etcd.crt"),
		"--key-file=" + c.PKI("etcd.key"),
		"--trusted-ca-file=" + c.PKI("etcd-ca.crt"),
		"--client-cert-auth=true",
		"--peer-cert-file=" + c.PKI("etcd.crt"),
		"--peer-key-file=" + c.PKI("etcd.key"),
		"--peer-trusted-ca-file=" + c.PKI("etcd-ca.crt"),
		"--peer-client-cert-auth=true",
		"--auto-compaction-retention=1h",
		"--quota-backend-bytes=2147483648",
		"--log-level=warn",
		// A single member need not wait a second for rivals.
		"--heartbeat-interval=50",
		"--election-timeout=250",
	}
}

// APIServer returns its command line.
func APIServer(c layout.Cluster) []string {
	ip := c.HostIP().String()
	return []string{
		"--advertise-address=" + ip,
		"--bind-address=" + ip,
		fmt.Sprintf("--secure-port=%d", layout.APIServerPort),
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--anonymous-auth=false",
		"--client-ca-file=" + c.PKI("ca.crt"),
		"--tls-cert-file=" + c.PKI("apiserver.crt"),
		"--tls-private-key-file=" + c.PKI("apiserver.key"),
		fmt.Sprintf("--etcd-servers=https://%s:%d", ip, layout.EtcdPort),
		"--etcd-cafile=" + c.PKI("etcd-ca.crt"),
		"--etcd-certfile=" + c.PKI("apiserver-etcd-client.crt"),
		"--etcd-keyfile=" + c.PKI("apiserver-etcd-client.key"),
		"--kubelet-certificate-authority=" + c.PKI("ca.crt"),
		"--kubelet-client-certificate=" + c.PKI("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + c.PKI("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.PKI("sa.key"),
		"--service-account-signing-key-file=" + c.PKI("sa.key"),
		"--service-cluster-ip-range=" + c.ServiceNet().String(),
		// Extension API servers are called at their pods' addresses.
		"--requestheader-client-ca-file=" + c.PKI("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.PKI("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.PKI("front-proxy-client.key"),
		"--enable-aggregator-routing=true",
		"--audit-policy-file=" + c.Config("audit-policy.yaml"),
		"--audit-log-path=" + c.AuditLog(),
		"--audit-log-maxsize=64",
		"--audit-log-maxbackup=2",
		// Open watches must not delay the shutdown.
		"--shutdown-delay-duration=0s",
		"--profiling=false",
	}
}

// ControllerManager returns its command line.
func ControllerManager(c layout.Cluster) []string {
	kubeconfig := c.Config("controller-manager.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + c.HostIP().String(),
		"--tls-cert-file=" + c.PKI("controller-manager.crt"),
		"--tls-private-key-file=" + c.PKI("controller-manager.key"),
		"--client-ca-file=" + c.PKI("ca.crt"),
		"--requestheader-client-ca-file=" + c.PKI("front-proxy-ca.crt"),
		"--root-ca-file=" + c.PKI("ca.crt"),
		"--cluster-signing-cert-file=" + c.PKI("ca.crt"),
		"--cluster-signing-key-file=" + c.PKI("ca.key"),
		"--service-account-private-key-file=" + c.PKI("sa.key"),
		"--use-service-account-credentials=true",
		"--service-cluster-ip-range=" + c.ServiceNet().String(),
		"--allocate-node-cidrs=false",
		// Leader election would delay a single instance's start.
		"--leader-elect=false",
		// A node is unhealthy 20 s after the last renewal of its lease, which the kubelet renews
		// every 2.5 s (NodeLeaseDurationSeconds).
		"--node-monitor-period=2s",
		"--node-monitor-grace-period=20s",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--profiling=false",
	}
}

// Scheduler returns the scheduler's command line.
func Scheduler(c layout.Cluster) []string {
	kubeconfig := c.Config("scheduler.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + c.HostIP().String(),
		"--tls-cert-file=" + c.PKI("scheduler.crt"),
		"--tls-private-key-file=" + c.PKI("scheduler.key"),
		"--client-ca-file=" + c.PKI("ca.crt"),
		"--requestheader-client-ca-file=" + c.PKI("front-proxy-ca.crt"),
		"--leader-elect=false",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--profiling=false",
	}
}

// AuditPolicy logs all writes, and the reads of Drydock's components: tests and benchmarks count them.
func AuditPolicy() string {
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users:
  - system:serviceaccount:kubevirt:kubevirt-apiserver
  - system:serviceaccount:kubevirt:kubevirt-controller
  - system:serviceaccount:kubevirt:kubevirt-handler
  verbs: [get, list, watch]
- level: None
  verbs: [get, list, watch]
- level: None
  nonResourceURLs: ["/*"]
# Its calls of Drydock's admission webhooks: each belongs to a write that is recorded itself.
- level: None
  users: ["system:apiserver"]
  resources: [{group: admission.drydock.dev}]
- level: Metadata
`
}
