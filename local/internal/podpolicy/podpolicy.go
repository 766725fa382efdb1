// Package podpolicy decides which packets the cluster's NetworkPolicies let pass on one node. From
// pods, namespaces and policies it makes a script for nft. It starts no program and asks nobody.
//
// A node judges the pods that it has: what they send by their egress rules, what is sent to them by
// their ingress rules, both where the node forwards the packet, after services have become pods and
// before an address is hidden. The node itself does not forward what it sends to its pods (probes) or
// takes from them. Pods that the same policies isolate share a chain:
//
//	forward -> by the sender's address    -> egress chain:  return (goes on) or drop
//	        -> by the receiver's address  -> ingress chain: return (passes) or drop
//
// No name or label enters the script, but addresses and numbers only. See decision 650.
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

// Table is the name of the node's table of policies.
const Table = "drydock-policies"

// Pod is what a policy can see of a pod.
type Pod struct {
	UID       types.UID
	Namespace string
	Labels    map[string]string
	Addresses []netip.Addr
	// Ports are those that have a name, one of each name and protocol.
	Ports []Port
	// Local reports whether the pod is on the node whose rules are made.
	Local bool
}

// Port is a port that a policy can name.
type Port struct {
	Name     string
	Protocol corev1.Protocol
	Number   uint16
}

// State is all that the rules of a node depend on. No two pods have the same address.
type State struct {
	// Bridge is the interface that all pods of the node are behind.
	Bridge string
	// Host is the machine that all nodes are on. It reaches each pod, as a node reaches its own.
	Host       netip.Addr
	Pods       []Pod
	Namespaces map[string]labels.Set
	Policies   []*networkingv1.NetworkPolicy
}

// PodOf returns what a policy can see of a pod. ok is false for pods that policies do not judge: they
// have the node's address, or have ended.
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

// name adds ports that have a name. Of several of one name the first counts, as for a Service: a pod can't make others' sets
// as large as it likes.
func (p *Pod) name(ports []corev1.ContainerPort) {
	for _, port := range ports {
		protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
		known := slices.ContainsFunc(p.Ports, func(q Port) bool { return q.Name == port.Name && q.Protocol == protocol })
		if port.Name != "" && !known && port.ContainerPort > 0 && port.ContainerPort < 1<<16 {
			p.Ports = append(p.Ports, Port{port.Name, protocol, uint16(port.ContainerPort)})
		}
	}
}

// governs reports whether a policy has rules for a direction.
func governs(policy *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	if len(policy.Spec.PolicyTypes) > 0 {
		return slices.Contains(policy.Spec.PolicyTypes, direction)
	}
	return direction == networkingv1.PolicyTypeIngress || len(policy.Spec.Egress) > 0
}
