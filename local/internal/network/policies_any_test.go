//go:build system

package network

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"drydock.dev/local/internal/podpolicy"
)

// If nft refused one namespace's policy, those of all others, and new pods, would have to wait.
func TestTheKernelTakesWhateverPoliciesSay(t *testing.T) {
	ownNamespace(t)
	seed := rand.Uint64()
	r := anyOf{rand.New(rand.NewPCG(seed, 0))}
	for range 150 {
		s := podpolicy.State{
			Bridge: "cni0", Host: netip.MustParseAddr("10.77.0.1"),
			Namespaces: map[string]labels.Set{"a": {"l": "0"}, "b": {"l": "1"}},
		}
		for i := range r.IntN(12) {
			s.Pods = append(s.Pods, r.pod(byte(i)))
		}
		for i := range r.IntN(8) {
			s.Policies = append(s.Policies, r.policy(fmt.Sprint(i)))
		}
		if script, _ := podpolicy.Rules(s); nft(script) != nil {
			t.Fatalf("with seed %d: %v:\n%s", seed, nft(script), script)
		}
	}
}

// anyOf draws objects that the API server would accept.
type anyOf struct{ *rand.Rand }

func pick[T any](r anyOf, items ...T) T { return items[r.IntN(len(items))] }

func (r anyOf) pod(last byte) podpolicy.Pod {
	return podpolicy.Pod{
		Namespace: pick(r, "a", "b"), Labels: labels.Set{"l": pick(r, "0", "1", "2")}, Local: r.IntN(4) > 0,
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 77, 64, last})}, Ports: []podpolicy.Port{
			{Name: "p", Protocol: r.protocol(), Number: uint16(1 + r.IntN(3))}, {Name: "p", Protocol: r.protocol(), Number: uint16(1 + r.IntN(3))},
		},
	}
}

func (r anyOf) policy(name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: pick(r, "a", "b"), Name: name}}
	p.Spec.PodSelector = *r.selector()
	p.Spec.PolicyTypes = pick(r, nil, []networkingv1.PolicyType{"Ingress"}, []networkingv1.PolicyType{"Egress"}, []networkingv1.PolicyType{"Ingress", "Egress"})
	for range r.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: r.peers(), Ports: r.ports()})
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: r.peers(), Ports: r.ports()})
	}
	return p
}

func (r anyOf) selector() *metav1.LabelSelector {
	return pick(r,
		&metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"l": pick(r, "0", "1", "9")}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "l", Operator: pick(r, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: []string{"0", "2"},
		}}})
}

func (r anyOf) peers() []networkingv1.NetworkPolicyPeer {
	var peers []networkingv1.NetworkPolicyPeer
	for range r.IntN(4) {
		peers = append(peers, pick(r,
			networkingv1.NetworkPolicyPeer{PodSelector: r.selector()},
			networkingv1.NetworkPolicyPeer{NamespaceSelector: r.selector()},
			networkingv1.NetworkPolicyPeer{PodSelector: r.selector(), NamespaceSelector: r.selector()},
			networkingv1.NetworkPolicyPeer{IPBlock: r.block()}))
	}
	return peers
}

// block is a range with others in it, which often overlap.
func (r anyOf) block() *networkingv1.IPBlock {
	prefix := func(least int) string {
		address := [4]byte{10, byte(r.IntN(2)), byte(r.IntN(3)), byte(r.IntN(3))}
		if r.IntN(3) == 0 {
			address = [4]byte{pick(r, byte(0), 127, 224, 255), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))}
		}
		return netip.PrefixFrom(netip.AddrFrom4(address), least+r.IntN(33-least)).String()
	}
	block := &networkingv1.IPBlock{CIDR: pick(r, "0.0.0.0/0", "::/0", "fd00::/8", prefix(0), prefix(8))}
	for range r.IntN(6) {
		block.Except = append(block.Except, pick(r, prefix(0), prefix(1), prefix(24), "fd00::/64", "0.0.0.0/0"))
	}
	return block
}

func (r anyOf) protocol() corev1.Protocol {
	return pick(r, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

func (r anyOf) ports() []networkingv1.NetworkPolicyPort {
	var ports []networkingv1.NetworkPolicyPort
	for range r.IntN(5) {
		first := pick(r, 1, 80, 65535, 1+r.IntN(65535))
		port := networkingv1.NetworkPolicyPort{Protocol: pick(r, nil, new(r.protocol())), Port: pick(r,
			nil, new(intstr.FromString("p")), new(intstr.FromString("none")), new(intstr.FromInt32(int32(first))))}
		if port.Port != nil && port.Port.Type == intstr.Int && r.IntN(2) == 0 {
			port.EndPort = new(int32(first + r.IntN(65536-first)))
		}
		ports = append(ports, port)
	}
	return ports
}
