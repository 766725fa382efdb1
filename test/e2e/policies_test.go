//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The embedded cluster enforces NetworkPolicies. Here they judge guests; local/internal/network tests the policies'
// fields, and local/system that they judge pods from their first packet.

// isPoliced checks that a pod "peer" reaches the guest's echo only as policies admit it, and likewise the guest the
// pod.
func isPoliced(t *testing.T, g *guest) {
	t.Helper()
	ns, address, peer := g.namespace, guestAddress(t, g), awaitPodRunning(t, g.namespace, "peer")
	deny := denyAll(t, ns)
	isUnreached(t, ns, address)
	eventually(t, "no answer from the pod to the guest", func(context.Context) error {
		if out, err := g.try("ping -c 2 -W 2 " + peer.Status.PodIP); err == nil {
			return fmt.Errorf("a pod that no policy admits answers: %s", out)
		}
		return nil
	})
	admit := policy(ns, "admit-echo", networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(7777))}},
		}},
		Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
	})
	create(t, admit)
	isReached(t, ns, address)
	deleteObject(t, admit)
	deleteObject(t, deny)
}

func denyAll(t *testing.T, ns string) *networkingv1.NetworkPolicy {
	t.Helper()
	deny := policy(ns, "deny-all", networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	})
	create(t, deny)
	return deny
}

func policy(ns, name string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec}
}

// isUnreached waits until the guest's echo does not answer the pod "peer": a policy takes effect a moment after its
// creation.
func isUnreached(t *testing.T, ns, address string) {
	t.Helper()
	eventually(t, "no answer from "+address, func(context.Context) error {
		if out, err := inPod(t, ns, "peer", asksEcho(address)); err == nil {
			return fmt.Errorf("it answers %q", out)
		}
		return nil
	})
}

func isReached(t *testing.T, ns, address string) {
	t.Helper()
	fromPod(t, ns, asksEcho(address))
}

func asksEcho(address string) string {
	return fmt.Sprintf("echo hello-guest | nc -w 3 %s 7777 | grep hello-guest", address)
}
