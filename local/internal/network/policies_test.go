//go:build system

package network

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"drydock.dev/local/internal/podpolicy"
)

// policyNode is a node with three pods behind its bridge. Beyond its cable are the host, a pod of another node, and the
// world. The test's thread is in the node's namespace.
type policyNode struct {
	t     *testing.T
	state podpolicy.State
	at    map[string]place
}

type place struct {
	ns      netns.NsHandle
	address string
}

func newPolicyNode(t *testing.T) *policyNode {
	t.Helper()
	ownNamespace(t)
	node, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	run(t, `ip link set lo up; ip link add cni0 type bridge; ip addr add 10.77.64.1/24 dev cni0; ip link set cni0 up
		echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables; echo 1 >/proc/sys/net/bridge/bridge-nf-call-ip6tables`)
	n := &policyNode{t: t, at: map[string]place{"node": {node, ""}}}
	outPID, out := machine(t)
	run(t, fmt.Sprintf(`ip link add eth0 type veth peer name out netns %[1]d; ip addr add 10.77.0.11/24 dev eth0; ip link set eth0 up; ip route add default via 10.77.0.1
		nsenter -n -t %[1]d sh -ec 'ip link set lo up; ip addr add 10.77.0.1/24 dev out; ip link set out up; ip addr add 10.77.65.5/32 dev lo; ip addr add 192.0.2.2/32 dev lo; ip route add 10.77.64.0/24 via 10.77.0.11'`, outPID))
	for name, address := range map[string]string{"host": "10.77.0.1", "far": "10.77.65.5", "world": "192.0.2.2"} {
		n.at[name] = place{out, address}
	}
	for i, name := range []string{"web", "db", "guest"} {
		pid, ns := machine(t)
		address := fmt.Sprintf("10.77.64.%d", i+2)
		run(t, fmt.Sprintf(`ip link add pod%[1]d type veth peer name eth0 netns %[2]d; ip link set pod%[1]d master cni0; ip link set pod%[1]d type bridge_slave hairpin on; ip link set pod%[1]d up
			nsenter -n -t %[2]d sh -ec 'ip link set lo up; ip addr add %[3]s/24 dev eth0; ip addr add fd00::%[4]d/64 dev eth0 nodad; ip link set eth0 up; ip route add default via 10.77.64.1'`, i, pid, address, i+2))
		n.at[name] = place{ns, address}
	}
	n.state = podpolicy.State{
		Bridge: "cni0", Host: netip.MustParseAddr("10.77.0.1"),
		Namespaces: map[string]labels.Set{"shop": {"team": "red"}, "lab": {"team": "blue"}},
		Pods: []podpolicy.Pod{
			{Namespace: "shop", Labels: labels.Set{"app": "web"}, Addresses: n.addresses("web"), Local: true, Ports: []podpolicy.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Number: 8080}}},
			{Namespace: "shop", Labels: labels.Set{"app": "db"}, Addresses: n.addresses("db"), Local: true},
			{Namespace: "lab", Labels: labels.Set{"app": "guest"}, Addresses: n.addresses("guest"), Local: true},
			{Namespace: "shop", Labels: labels.Set{"app": "far"}, Addresses: n.addresses("far")},
		},
	}
	return n
}

func (n *policyNode) addresses(name string) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(n.at[name].address)}
}

func (n *policyNode) enforce(specs ...string) {
	n.t.Helper()
	n.state.Policies = nil
	for i, spec := range specs {
		policy := &networkingv1.NetworkPolicy{}
		policy.Namespace, policy.Name = "shop", fmt.Sprint(i)
		if err := yaml.UnmarshalStrict([]byte(spec), &policy.Spec); err != nil {
			n.t.Fatal(err)
		}
		n.state.Policies = append(n.state.Policies, policy)
	}
	n.load()
}

func (n *policyNode) load() {
	n.t.Helper()
	script, over := podpolicy.Rules(n.state)
	if err := nft(script); err != nil || len(over) > 0 {
		n.t.Fatalf("%v, too much in %v:\n%s", err, over, script)
	}
}

// reach tries one connection, "web -> db:80".
func (n *policyNode) reach(way string, patience time.Duration) error {
	var from, to, port string
	if _, err := fmt.Sscanf(strings.ReplaceAll(way, ":", " "), "%s -> %s %s", &from, &to, &port); err != nil {
		n.t.Fatalf("%q: %v", way, err)
	}
	_, err := connect(n.at[from].ns, n.at[to].ns, n.at[from].address, net.JoinHostPort(n.at[to].address, port), patience)
	return err
}

func (n *policyNode) check(passes, blocked []string) {
	n.t.Helper()
	for _, way := range passes {
		if err := n.reach(way, 20*time.Second); err != nil {
			n.t.Errorf("%s must pass: %v", way, err)
		}
	}
	for _, way := range blocked {
		if err := n.reach(way, 300*time.Millisecond); err == nil || strings.Contains(err.Error(), "the test can't") {
			n.t.Errorf("%s must be blocked: %v", way, err)
		}
	}
}

const denyAll = `{podSelector: {}, policyTypes: [Ingress, Egress]}`

// TestPoliciesHold applies each sort of rule to packets of one node, of another and of the world.
func TestPoliciesHold(t *testing.T) {
	n := newPolicyNode(t)
	everybody := []string{"web -> db:80", "db -> web:80", "guest -> web:80", "far -> web:80", "web -> far:80", "web -> world:80", "host -> web:80", "node -> web:80", "web -> web:80"}
	for _, test := range []struct {
		name            string
		specs           []string
		passes, blocked []string
	}{
		{"no policy", nil, everybody, nil},
		{
			"nothing is admitted", []string{denyAll},
			[]string{"host -> web:80", "node -> db:80", "web -> web:80", "guest -> far:80", "guest -> world:80"},
			[]string{"web -> db:80", "db -> web:80", "guest -> web:80", "far -> web:80", "web -> far:80", "web -> world:80"},
		},
		{
			"ingress alone says nothing of egress", []string{`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`},
			[]string{"web -> db:80", "web -> world:80", "guest -> db:80"}, []string{"db -> web:80", "far -> web:80"},
		},
		{
			"by the pod's label, within the namespace", []string{denyAll, `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [far, guest]}]}}]}]}`},
			[]string{"far -> web:80"}, []string{"guest -> web:80", "db -> web:80", "far -> db:80"},
		},
		{
			"by the namespace's label", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}}]}]}`},
			[]string{"guest -> web:80", "guest -> db:80"}, []string{"far -> web:80", "db -> web:80"},
		},
		{
			"by both at once", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: guest}}}]}]}`},
			[]string{"guest -> web:80"}, []string{"far -> web:80"},
		},
		{
			"by port: a number, a range and a name", []string{`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}, {port: 90, endPort: 95}, {port: 92, endPort: 99}, {port: http}]}]}`},
			[]string{"db -> web:80", "far -> web:90", "far -> web:99", "guest -> web:8080"}, []string{"db -> web:81", "far -> web:100", "guest -> web:8081"},
		},
		{
			"another protocol's port", []string{`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80, protocol: UDP}, {protocol: SCTP}]}]}`},
			nil, []string{"db -> web:80"},
		},
		{
			"by address, with an exception", []string{`{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 10.77.64.0/24, "::/0"]}}]}], policyTypes: [Egress]}`},
			[]string{"web -> world:80", "guest -> web:80"}, []string{"web -> far:80", "web -> db:80"},
		},
		{
			"all addresses but all", []string{`{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/0]}}]}], policyTypes: [Egress]}`},
			nil, []string{"web -> world:80", "web -> db:80"},
		},
		{
			"egress to pods, by the name that they give a port", []string{`{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: http}]}]}`},
			[]string{"far -> db:80", "db -> web:8080"}, []string{"db -> web:80", "db -> far:8080"},
		},
		{
			"both ends must admit", []string{`{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{}]}`, `{podSelector: {matchLabels: {app: web}}}`},
			[]string{"db -> far:80"}, []string{"db -> web:80"},
		},
		{"a policy for nobody", []string{`{podSelector: {matchLabels: {app: none}}}`}, everybody, nil},
		{"policies are deleted", nil, everybody, nil},
	} {
		t.Logf("%s", test.name)
		n.enforce(test.specs...)
		n.check(test.passes, test.blocked)
	}
}

// TestConnectionsOutliveThePolicyThatWouldRefuseThem: policies judge only the begin of a connection.
func TestConnectionsOutliveThePolicyThatWouldRefuseThem(t *testing.T) {
	n := newPolicyNode(t)
	n.enforce()
	// A loaded table makes the kernel track connections.
	n.enforce(`{podSelector: {matchLabels: {app: none}}}`, `{podSelector: {matchLabels: {app: db}}}`)
	var listener net.Listener
	err := within(n.at["web"].ns, func() (err error) { listener, err = net.Listen("tcp4", "10.77.64.2:80"); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var client net.Conn
	err = within(n.at["guest"].ns, func() (err error) { client, err = net.Dial("tcp4", "10.77.64.2:80"); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	n.enforce(denyAll)
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Errorf("the connection does not go on: %v", err)
	}
	n.check(nil, []string{"guest -> web:81"})
}

// Pods of one node are on one bridge, where a guest can assign itself an address that no policy knows.
func TestNoWayAroundByIPv6(t *testing.T) {
	n := newPolicyNode(t)
	dial := func(patience time.Duration) error {
		var conn net.Conn
		var server net.Listener
		err := within(n.at["web"].ns, func() (err error) { server, err = net.Listen("tcp6", "[fd00::2]:80"); return err })
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		err = within(n.at["guest"].ns, func() (err error) {
			conn, err = net.DialTimeout("tcp6", "[fd00::2]:80", patience)
			return err
		})
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	if err := dial(20 * time.Second); err != nil {
		t.Fatalf("without a policy it must pass: %v", err)
	}
	n.enforce(denyAll)
	if err := dial(300 * time.Millisecond); err == nil {
		t.Error("an address of IPv6 is a way around the policy")
	}
}

// TestDrydocksOwnPoliciesAdmitWhatItNeeds loads the manifests' policies in a namespace where an administrator denies
// everything.
func TestDrydocksOwnPoliciesAdmitWhatItNeeds(t *testing.T) {
	n := newPolicyNode(t)
	policies, pods := manifests(t)
	at := func(component, place string, local bool) podpolicy.Pod {
		pod, ok := pods[component]
		if !ok {
			t.Fatalf("the manifests have no %s", component)
		}
		pod.Namespace, pod.Addresses, pod.Local = "kubevirt", n.addresses(place), local
		return pod
	}
	deny := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"}}}
	deny.Namespace, deny.Name = "kubevirt", "deny"
	n.state.Policies = append(policies, deny)
	n.state.Pods = []podpolicy.Pod{
		at("virt-handler", "web", true), at("virt-api", "db", true), at("virt-handler", "far", false),
		{Namespace: "lab", Addresses: n.addresses("guest"), Local: true},
	}
	n.load()
	n.check([]string{
		"world -> db:8443", "guest -> db:8444", // the API server, and uploads
		"db -> web:8186", "far -> web:8187", // virt-api, and another node's virt-handler
		"node -> web:8080", "host -> web:8080", // probes, from the node and from the machine of all nodes
		"web -> world:6443", "db -> far:8186",
	}, []string{
		"guest -> web:8443", "guest -> db:8445", "db -> web:8443", // metrics
		"guest -> web:8080", "guest -> db:8080", "db -> web:8080", // probes
		"guest -> web:8186", "far -> web:8186", "guest -> web:8187", "db -> web:8187", "guest -> web:22",
	})
	n.state.Namespaces["lab"] = labels.Set{"drydock.dev/reads-metrics": "true"}
	n.load()
	n.check([]string{"guest -> web:8443", "guest -> db:8445"}, []string{"guest -> web:8186", "guest -> web:8080", "guest -> db:8080"})
	n.state.Namespaces["lab"] = labels.Set{corev1.LabelMetadataName: "monitoring"}
	n.state.Pods[1] = at("virt-controller", "db", true)
	n.load()
	n.check([]string{"guest -> db:8443"}, []string{"guest -> db:8445", "far -> db:8443", "guest -> db:8080"})
}

func manifests(t *testing.T) (policies []*networkingv1.NetworkPolicy, pods map[string]podpolicy.Pod) {
	t.Helper()
	pods = map[string]podpolicy.Pod{}
	files, err := filepath.Glob("../../../config/deploy/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			var workload appsv1.Deployment // a DaemonSet has its template in the same place
			policy := &networkingv1.NetworkPolicy{}
			if err := yaml.Unmarshal([]byte(document), &workload.TypeMeta); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			switch workload.Kind {
			case "NetworkPolicy":
				err = yaml.UnmarshalStrict([]byte(document), policy)
				policies = append(policies, policy)
			case "Deployment", "DaemonSet":
				err = yaml.Unmarshal([]byte(document), &workload)
				template := workload.Spec.Template
				pods[workload.Name], _ = podpolicy.PodOf(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, "")
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
	return policies, pods
}
