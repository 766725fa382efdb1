package schedulable

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// left is a node that virt-handler has left: its DaemonSet selects nodes with the label guests, which this one has
// lost.
func left() Observed {
	node := &corev1.Node{}
	node.Name, node.ResourceVersion = "node1", "7"
	node.Labels = map[string]string{v1.NodeSchedulable: "true", "zone": "a"}
	node.Status.Allocatable = corev1.ResourceList{layout.ResourceTUN: resource.MustParse("0")}
	ds := &appsv1.DaemonSet{}
	ds.Namespace, ds.Name, ds.Generation = "kubevirt", "virt-handler", 3
	ds.Status.ObservedGeneration = 3
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{v1.AppLabel: "virt-handler"}}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"guests": "yes"}
	ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return Observed{Node: node, NodeAsked: true, DaemonSet: ds, PodsAsked: true}
}

// tainted is a node with a taint that virt-handler's DaemonSet selects.
func tainted(key string, effect corev1.TaintEffect, tolerations ...corev1.Toleration) func(*Observed) {
	return func(o *Observed) {
		o.Node.Labels["guests"] = "yes"
		o.Node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}}
		o.DaemonSet.Spec.Template.Spec.Tolerations = tolerations
	}
}

// terms makes the DaemonSet select nodes by these terms.
func terms(terms ...corev1.NodeSelectorTerm) func(*Observed) {
	return func(o *Observed) {
		o.DaemonSet.Spec.Template.Spec.NodeSelector = nil
		o.DaemonSet.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
}

func term(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

// pod adds a pod on the node, of the namespace and the application.
func pod(namespace, app string, changes ...func(*corev1.Pod)) func(*Observed) {
	return func(o *Observed) {
		p := corev1.Pod{}
		p.Namespace, p.Name, p.Labels = namespace, "p", map[string]string{v1.AppLabel: app}
		p.Status.Phase = corev1.PodRunning
		for _, change := range changes {
			change(&p)
		}
		if o.Keeps(&p) {
			o.Keeping = append(o.Keeping, p.Name)
		}
	}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func selects(labels map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = labels }
}

func TestWhetherVirtHandlerHasLeftANode(t *testing.T) {
	const (
		noSchedule, noExecute, prefer = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule
	)
	tolerated := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	goes := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	for name, tc := range map[string]struct {
		change func(*Observed)
		left   bool
		needs  Question
	}{
		"it has": {func(*Observed) {}, true, NeedNothing},

		// The caches suffice to do nothing.
		"there is no such node":              {func(o *Observed) { o.Node = nil }, false, NeedNothing},
		"the label says so already":          {func(o *Observed) { o.Node.Labels[v1.NodeSchedulable] = "false" }, false, NeedNothing},
		"the node has no label":              {func(o *Observed) { delete(o.Node.Labels, v1.NodeSchedulable) }, false, NeedNothing},
		"virt-handler serves the devices":    {func(o *Observed) { o.Node.Status.Allocatable[layout.ResourceTUN] = resource.MustParse("1") }, false, NeedNothing},
		"the kubelet has forgotten them":     {func(o *Observed) { o.Node.Status.Allocatable = nil }, true, NeedNothing},
		"a guest is there, by the cache":     {func(o *Observed) { o.Guests = true }, false, NeedNothing},
		"there is no DaemonSet":              {func(o *Observed) { o.DaemonSet = nil }, false, NeedNothing},
		"the DaemonSet is being deleted":     {func(o *Observed) { o.DaemonSet.DeletionTimestamp = &metav1.Time{} }, false, NeedNothing},
		"its controller has not seen it yet": {func(o *Observed) { o.DaemonSet.Generation = 4 }, false, NeedNothing},

		// The API server must confirm the rest: first the node, then its pods.
		"nothing has been asked for": {func(o *Observed) { o.NodeAsked, o.PodsAsked = false, false }, false, NeedNode},
		"only the pods have":         {func(o *Observed) { o.NodeAsked = false }, false, NeedNode},
		"only the node has":          {func(o *Observed) { o.PodsAsked = false }, false, NeedPods},
		"the node is wanted, and its pods need not be asked for": {
			func(o *Observed) { o.Node.Labels["guests"], o.PodsAsked = "yes", false }, false, NeedNothing},

		// Whether the DaemonSet selects the node.
		"its selector selects the node":      {func(o *Observed) { o.Node.Labels["guests"] = "yes" }, false, NeedNothing},
		"its selector selects another value": {func(o *Observed) { o.Node.Labels["guests"] = "no" }, true, NeedNothing},
		"it has no selector":                 {func(o *Observed) { o.DaemonSet.Spec.Template.Spec.NodeSelector = nil }, false, NeedNothing},
		"its affinity is to other nodes":     {terms(term("zone", corev1.NodeSelectorOpIn, "b")), true, NeedNothing},
		"one term of it is to this node":     {terms(term("zone", corev1.NodeSelectorOpIn, "b"), term("zone", corev1.NodeSelectorOpIn, "a")), false, NeedNothing},
		"its affinity can't be understood":   {terms(term("zone", "Near", "b")), false, NeedNothing},
		"it only prefers other nodes": {func(o *Observed) {
			terms()(o)
			o.DaemonSet.Spec.Template.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
		}, false, NeedNothing},
		"it only keeps away from pods":          {func(o *Observed) { terms()(o); o.DaemonSet.Spec.Template.Spec.Affinity.NodeAffinity = nil }, false, NeedNothing},
		"a taint that it does not tolerate":     {tainted("gpu", noSchedule), true, NeedNothing},
		"one that ends pods":                    {tainted("gpu", noExecute), true, NeedNothing},
		"one that it tolerates":                 {tainted("gpu", noExecute, tolerated), false, NeedNothing},
		"one that only warns":                   {tainted("gpu", prefer), false, NeedNothing},
		"a control plane, without a toleration": {tainted("node-role.kubernetes.io/control-plane", noSchedule), true, NeedNothing},
		"the node is cordoned":                  {tainted(corev1.TaintNodeUnschedulable, noSchedule), false, NeedNothing},
		"nobody hears of the node":              {tainted(corev1.TaintNodeUnreachable, noExecute), false, NeedNothing},
		"the node is out of service":            {tainted(corev1.TaintNodeOutOfService, noExecute), false, NeedNothing},
		"the cloud has shut the node down":      {tainted("node.cloudprovider.kubernetes.io/shutdown", noSchedule), false, NeedNothing},
		"the label is what selects its nodes": {
			func(o *Observed) { o.DaemonSet.Spec.Template.Spec.NodeSelector[v1.NodeSchedulable] = "true" }, false, NeedNothing},
		"its affinity goes by the label": {
			terms(term("zone", corev1.NodeSelectorOpIn, "b"), term(v1.NodeSchedulable, corev1.NodeSelectorOpNotIn, "true")), false, NeedNothing},

		// Which pods are left.
		"a guest":                          {pod("shop", layout.LauncherApp), false, NeedNothing},
		"a guest that starts":              {pod("shop", layout.LauncherApp, phase(corev1.PodPending)), false, NeedNothing},
		"a guest that is to go":            {pod("shop", layout.LauncherApp, goes), false, NeedNothing},
		"a guest that has ended":           {pod("shop", layout.LauncherApp, phase(corev1.PodSucceeded)), true, NeedNothing},
		"virt-handler":                     {pod("kubevirt", "virt-handler"), false, NeedNothing},
		"virt-handler, which is to go":     {pod("kubevirt", "virt-handler", goes), false, NeedNothing},
		"virt-handler, which was evicted":  {pod("kubevirt", "virt-handler", phase(corev1.PodFailed)), true, NeedNothing},
		"a pod of a tenant's of that name": {pod("shop", "virt-handler"), true, NeedNothing},
		"another part of Drydock":          {pod("kubevirt", "virt-api"), true, NeedNothing},
		"any pod":                          {pod("shop", "web"), true, NeedNothing},
		"the second of two is a guest":     {func(o *Observed) { pod("shop", "web")(o); pod("shop", layout.LauncherApp)(o) }, false, NeedNothing},
		"a DaemonSet whose pods nobody knows": {func(o *Observed) {
			o.DaemonSet.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
			pod("kubevirt", "virt-api")(o)
		}, false, NeedNothing},
		// A restarted kubelet would end it: maintenance pods, and any pod that selects by the label.
		"a pod for nodes that take guests":             {pod("shop", layout.MaintenanceApp, selects(map[string]string{v1.NodeSchedulable: "true"})), false, NeedNothing},
		"one that has ended":                           {pod("shop", "web", selects(map[string]string{v1.NodeSchedulable: "true"}), phase(corev1.PodFailed)), true, NeedNothing},
		"a pod for nodes that take none":               {pod("shop", "web", selects(map[string]string{v1.NodeSchedulable: "false"})), true, NeedNothing},
		"a pod for this zone":                          {pod("shop", "web", selects(map[string]string{"zone": "a"})), true, NeedNothing},
		"a pod that a kubelet would end whatever else": {pod("shop", "web", selects(map[string]string{v1.NodeSchedulable: "true", "zone": "b"})), true, NeedNothing},
	} {
		t.Run(name, func(t *testing.T) {
			o := left()
			tc.change(&o)
			if left, needs := Decide(o); left != tc.left || needs != tc.needs {
				t.Errorf("left %t, needs %q; want %t, %q", left, needs, tc.left, tc.needs)
			}
		})
	}
}

func TestOnlyTheLabelIsMarked(t *testing.T) {
	node := left().Node
	marked := Mark(node)
	if node.Labels[v1.NodeSchedulable] != "true" || marked.Labels[v1.NodeSchedulable] != "false" {
		t.Errorf("the label was %s and is %s", node.Labels[v1.NodeSchedulable], marked.Labels[v1.NodeSchedulable])
	}
	if marked.Labels["zone"] != "a" || marked.ResourceVersion != "7" {
		t.Errorf("something else is changed: %+v", marked)
	}
	if Candidate(marked) {
		t.Error("a node that is marked is looked at again")
	}
}
