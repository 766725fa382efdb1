// Package schedulable decides when the label kubevirt.io/schedulable of a node turns false because virt-handler has left
// the node and will not come back: its DaemonSet does not want the node, and none of its pods and no guest is left there
// (decision 043).
//
//	        virt-handler starts (package handler/node)
//	no label ──────────────────> true ──┐
//	                              ^     │ virt-controller: Decide
//	    virt-handler starts again │     v
//	                              └── false
//
// virt-handler owns the label, and writes what its node's probe says, false too. virt-controller is its deputy where
// no virt-handler is, and writes one thing: false where it was true. Nobody has to know whose false it is: a
// virt-handler that starts writes its own word, and virt-controller never writes true.
//
// What must hold:
//
//   - S1: no pod that runs ends by the write. A kubelet that starts ends pods whose node selector no longer fits.
//   - S2: where a virt-handler runs, the label comes to be what that one has found. Decide goes by the node, and by the
//     node's pods as they are after the node was read; the write is for that version of the node only, in which virt-handler's
//     devices are not offered. virt-handler looks at the label again when the node offers them. A write before that look
//     is seen by it. One after it would be for a later version, and by then the list of pods has virt-handler's.
//
// It is pure. It must not judge whether virt-handler is well: one that is away only (an update, a crash) is wanted by its
// DaemonSet, and the label stays.
package schedulable

import (
	"slices"
	"strings"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/podstatus"
)

// Values of the label.
const (
	yes = "true"
	no  = "false"
)

// Question is what a decision depends on that only the API server knows.
type Question string

// The questions, in the order in which they come up. S2 needs that the pods are asked for after the node.
const (
	NeedNothing Question = ""
	NeedNode    Question = "the node"
	NeedPods    Question = "the node's pods and virt-handler's DaemonSet"
)

// Observed is what is known of a node.
type Observed struct {
	// Node is nil for none. Until NodeAsked it may be one of which only what Candidate looks at is kept.
	Node      *corev1.Node
	NodeAsked bool
	// Guests means that a launcher pod is on the node by the cache.
	Guests bool
	// DaemonSet is virt-handler's, nil for none. From PodsAsked on it is the API server's.
	DaemonSet *appsv1.DaemonSet
	// Pods are all pods on the node.
	Pods      []corev1.Pod
	PodsAsked bool
}

// Decide reports whether the node's label is to be false (Mark), and what else has to be asked for to say so.
func Decide(o Observed) (left bool, needs Question) {
	if o.Node == nil || !Candidate(o.Node) || o.Guests || !current(o.DaemonSet) {
		return false, NeedNothing
	}
	if !o.NodeAsked {
		return false, NeedNode
	}
	if wants(o.DaemonSet, o.Node) {
		return false, NeedNothing
	}
	if !o.PodsAsked {
		return false, NeedPods
	}
	marked := Mark(o.Node)
	for i := range o.Pods {
		if pod := &o.Pods[i]; !podstatus.Terminal(pod) && (remains(pod, o.DaemonSet) || fits(pod, o.Node) && !fits(pod, marked)) {
			return false, NeedNothing
		}
	}
	return true, NeedNothing
}

// Candidate reports whether virt-handler is away from a node that says that it takes guests. The kubelet offers the
// devices as long as virt-handler serves them.
func Candidate(node *corev1.Node) bool {
	devices := node.Status.Allocatable[layout.ResourceTUN]
	return node.Labels[v1.NodeSchedulable] == yes && devices.IsZero()
}

// Mark is the node with the label that it has when virt-handler has left it.
func Mark(node *corev1.Node) *corev1.Node {
	marked := node.DeepCopy()
	marked.Labels[v1.NodeSchedulable] = no
	return marked
}

// current reports whether a DaemonSet is as its controller goes by it. One that is gone, or goes, says nothing of any
// node: whoever removes Drydock takes the label away himself.
func current(ds *appsv1.DaemonSet) bool {
	return ds != nil && ds.DeletionTimestamp == nil && ds.Status.ObservedGeneration >= ds.Generation
}

// wants reports whether a DaemonSet has a pod on a node, or will have one again. In doubt it wants it.
func wants(ds *appsv1.DaemonSet, node *corev1.Node) bool {
	template := &ds.Spec.Template.Spec
	if namesLabel(template) {
		// Then the label would keep virt-handler from coming back.
		return true
	}
	fits, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *template}).Match(node)
	if err != nil {
		return true
	}
	_, repelled := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, template.Tolerations, lasting, true)
	return fits && !repelled
}

// namesLabel reports whether the label decides where the pods of a template run.
func namesLabel(template *corev1.PodSpec) bool {
	if _, named := template.NodeSelector[v1.NodeSchedulable]; named {
		return true
	}
	affinity := template.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return r.Key == v1.NodeSchedulable })
	})
}

// passing are the beginnings of taints that Kubernetes itself puts on a node and takes away again. A DaemonSet's pods
// tolerate most of them, whatever their template says, and none of them means that a pod does not come back.
var passing = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

// lasting reports whether a taint that is not tolerated keeps a DaemonSet from a node for good.
func lasting(taint *corev1.Taint) bool {
	if taint.Effect != corev1.TaintEffectNoSchedule && taint.Effect != corev1.TaintEffectNoExecute {
		return false
	}
	return !slices.ContainsFunc(passing, func(prefix string) bool { return strings.HasPrefix(taint.Key, prefix) })
}

// remains reports whether a pod is a guest's, or virt-handler's: also one that another DaemonSet of its name has left.
// Anybody may make a pod, and say of it what he likes: at worst the label stays true where it could be false.
func remains(pod *corev1.Pod, ds *appsv1.DaemonSet) bool {
	if pod.Labels[v1.AppLabel] == layout.LauncherApp {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	return pod.Namespace == ds.Namespace && (err != nil || selector.Matches(labels.Set(pod.Labels)))
}

// fits reports whether a kubelet that starts lets a pod go on.
func fits(pod *corev1.Pod, node *corev1.Node) bool {
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return match && err == nil
}
