// Package podpolicy decides which packets the cluster's NetworkPolicies permit on one node. It renders pods,
// namespaces and policies to an nft script. It must start no program and have no I/O.
//
// A node filters the packets of its own pods: sent ones by egress rules, received ones by ingress rules, both in
// the forward hook, after service addresses are translated and before pod addresses are masqueraded. Packets
// between the node itself and its pods, such as probes, are not forwarded and thus not filtered. Pods that the same
// policies isolate share a chain:
//
//	forward -> by the sender's address    -> egress chain:  return (goes on) or drop
//	        -> by the receiver's address  -> ingress chain: return (passes) or drop
//
// The script contains only addresses and numbers, no names or labels of objects (decision 650).
package podpolicy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Table is the node's nftables table.
const Table = "drydock-policies"

// Pod has the fields that matter to policies.
type Pod struct {
	UID       types.UID
	Namespace string
	Labels    map[string]string
	Addresses []netip.Addr
	// Ports are named, one per name and protocol.
	Ports []Port
	// Local pods are on the rendered node.
	Local bool
}

// Port is a named port.
type Port struct {
	Name     string
	Protocol corev1.Protocol
	Number   uint16
}

// State is the input of a node's rules. No two pods have the same address.
type State struct {
	// Bridge connects all pods of the node.
	Bridge string
	// Host runs all nodes, and may reach every pod, as a node its own.
	Host       netip.Addr
	Pods       []Pod
	Namespaces map[string]labels.Set
	Policies   []*networkingv1.NetworkPolicy
}

// PodOf returns a pod, ok false for one without own addresses: it uses the node's network, or has ended.
func PodOf(p *corev1.Pod, node string) (pod Pod, ok bool) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	pod = Pod{UID: p.UID, Namespace: p.Namespace, Labels: p.Labels, Local: p.Spec.NodeName == node}
	for _, ip := range p.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil && addr.Is4() {
			pod.Addresses = append(pod.Addresses, addr)
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			pod.name(c.Ports)
		}
	}
	for i := range p.Spec.Containers {
		pod.name(p.Spec.Containers[i].Ports)
	}
	return pod, true
}

// The first port of a name counts, as for a Service, so that a pod can't inflate the sets of other namespaces'
// rules.
func (p *Pod) name(ports []corev1.ContainerPort) {
	for _, port := range ports {
		protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
		known := slices.ContainsFunc(p.Ports, func(q Port) bool { return q.Name == port.Name && q.Protocol == protocol })
		if port.Name != "" && !known && port.ContainerPort > 0 && port.ContainerPort < 1<<16 {
			p.Ports = append(p.Ports, Port{port.Name, protocol, uint16(port.ContainerPort)})
		}
	}
}

func governs(policy *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	if len(policy.Spec.PolicyTypes) > 0 {
		return slices.Contains(policy.Spec.PolicyTypes, direction)
	}
	return direction == networkingv1.PolicyTypeIngress || len(policy.Spec.Egress) > 0
}
