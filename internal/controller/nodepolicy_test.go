package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/policytest"
	"drydock.dev/drydock/internal/rules/cluster/schedulable"
)

// virt-controller may only mark a node without virt-handler as not schedulable for guests, and change nothing else of
// any node.
func TestVirtControllerOnlySaysOfNodesThatTheyTakeNoGuests(t *testing.T) {
	policy := policytest.Load(t, "../../config/rbac/node-policy.yaml", "virt-controller-nodes")
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		n.Name = "node1"
		n.Labels = map[string]string{v1.NodeSchedulable: "true", "zone": "a"}
		n.Status.Allocatable = corev1.ResourceList{layout.ResourceTUN: resource.MustParse("0")}
		change(n)
		return n
	}
	asIs := func(*corev1.Node) {}
	label := func(value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[v1.NodeSchedulable] = value }
	}
	unlabeled := func(n *corev1.Node) { delete(n.Labels, v1.NodeSchedulable) }
	bare := func(n *corev1.Node) { n.Status.Allocatable = nil }
	served := func(n *corev1.Node) { n.Status.Allocatable[layout.ResourceTUN] = resource.MustParse("1000") }
	with := func(changes ...func(*corev1.Node)) func(*corev1.Node) {
		return func(n *corev1.Node) {
			for _, change := range changes {
				change(n)
			}
		}
	}
	const (
		labels = "may only label nodes"
		value  = "that takes guests that it takes none"
		serves = "virt-handler serves"
		other  = "nothing of a node but that label"
	)
	for name, test := range map[string]struct {
		by            *user.DefaultInfo
		resource      string
		before, after func(*corev1.Node)
		refused       string
	}{
		"virt-handler has left":                 {virtController, "nodes", asIs, label("false"), ""},
		"no virt-handler was there for long":    {virtController, "nodes", bare, with(bare, label("false")), ""},
		"virt-handler is there":                 {virtController, "nodes", served, with(served, label("false")), serves},
		"the devices are taken away with it":    {virtController, "nodes", served, label("false"), serves},
		"virt-handler is to come back":          {virtController, "nodes", label("false"), label("true"), value},
		"the label goes":                        {virtController, "nodes", asIs, unlabeled, value},
		"the label goes, which said no":         {virtController, "nodes", label("false"), unlabeled, value},
		"the label comes":                       {virtController, "nodes", unlabeled, label("false"), value},
		"the label of a node that says nothing": {virtController, "nodes", unlabeled, label("true"), value},
		"another value":                         {virtController, "nodes", asIs, label("maybe"), value},
		"another label beside it":               {virtController, "nodes", asIs, with(label("false"), func(n *corev1.Node) { n.Labels["zone"] = "b" }), value},
		"another label goes":                    {virtController, "nodes", asIs, with(label("false"), func(n *corev1.Node) { delete(n.Labels, "zone") }), value},
		"another label comes":                   {virtController, "nodes", asIs, with(label("false"), func(n *corev1.Node) { n.Labels["b"] = "c" }), value},
		"all labels go":                         {virtController, "nodes", asIs, func(n *corev1.Node) { n.Labels = nil }, value},
		"nothing":                               {virtController, "nodes", asIs, asIs, value},
		"a taint":                               {virtController, "nodes", asIs, with(label("false"), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }), other},
		"an annotation":                         {virtController, "nodes", asIs, with(label("false"), func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }), other},
		"a finalizer":                           {virtController, "nodes", asIs, with(label("false"), func(n *corev1.Node) { n.Finalizers = []string{"a/b"} }), other},
		"an owner":                              {virtController, "nodes", asIs, with(label("false"), func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "a"}} }), other},
		"by way of the status":                  {virtController, "nodes/status", asIs, label("false"), labels},
		"a node is made":                        {virtController, "nodes", nil, asIs, labels},
		"a node is deleted":                     {virtController, "nodes", asIs, nil, labels},
		"an administrator":                      {administrator, "nodes", served, with(served, unlabeled), ""},
	} {
		t.Run(name, func(t *testing.T) {
			write := policytest.Write{By: test.by, Resource: test.resource}
			if test.before != nil {
				write.Old = node(test.before)
			}
			if test.after != nil {
				write.New = node(test.after)
			}
			answer := policy.Answer(t, write)
			if (answer == "") != (test.refused == "") || !strings.Contains(answer, test.refused) {
				t.Errorf("the answer is %q, want %q", answer, test.refused)
			}
		})
	}
	left := node(asIs)
	if answer := policy.Answer(t, policytest.Write{By: virtController, Resource: "nodes", Old: left, New: schedulable.Mark(left)}); answer != "" {
		t.Errorf("what virt-controller writes is refused: %s", answer)
	}
}
