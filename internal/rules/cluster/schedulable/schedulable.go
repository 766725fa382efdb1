// Package schedulable decides when the label kubevirt.io/schedulable of a node becomes false because virt-handler has
// left the node permanently: its DaemonSet does not want the node, where none of its pods and no guest is left
// (decision 043).
//
//	        virt-handler starts (package handler/node)
//	no label ──────────────────> true ──┐
//	                              ^     │ virt-controller: Decide
//	    virt-handler starts again │     v
//	                              └── false
//
// virt-handler owns the label and writes the result of its node's probe, which may be false too. virt-controller only
// turns true into false for an absent virt-handler. The author of a false does not matter: a virt-handler that starts
// writes its own result.
//
// Invariants:
//
//   - S1: no running pod ends because of the write. A kubelet that starts ends pods whose node selector
//     no longer fits.
//   - S2: if a virt-handler runs, the label becomes the result of its probe. Decide reads the node, and
//     after that the node's pods; the write is conditional on that version of the node, in which
//     virt-handler's devices are not offered. When the node offers them, virt-handler reads the label
//     again and sees an earlier write. A later write would be for a later version of the node, with
//     virt-handler among its pods.
//
// It must not judge virt-handler's health: while one is away temporarily (an update, a crash), the label stays.
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
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

const (
	yes = "true"
	no  = "false"
)

// Question is a fact that a decision needs and only the API server knows.
type Question string

// The questions in the order that S2 requires.
const (
	NeedNothing Question = ""
	NeedNode    Question = "the node"
	NeedPods    Question = "the node's pods and virt-handler's DaemonSet"
)

// Observed is the state of a node.
type Observed struct {
	// Node is nil for none. Until NodeAsked it may have only the fields that Candidate reads.
	Node      *corev1.Node
	NodeAsked bool
	// Guests means that the cache has a launcher pod there.
	Guests bool
	// DaemonSet is virt-handler's, nil for none. With PodsAsked it is the API server's.
	DaemonSet *appsv1.DaemonSet
	// Keeping names the pods on the node that keep the label, by Keeps.
	Keeping   []string
	PodsAsked bool
}

// Decide reports whether to Mark the node, and the next fact that it needs for that.
func Decide(o Observed) (left bool, needs Question) {
	if o.Node == nil || !Candidate(o.Node) || o.Guests {
		return false, NeedNothing
	}
	// A missing or terminating DaemonSet decides nothing: whoever uninstalls Drydock removes the label. Nor does one
	// whose controller has not seen its present spec.
	if ds := o.DaemonSet; ds == nil || ds.DeletionTimestamp != nil || ds.Status.ObservedGeneration < ds.Generation {
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
	return len(o.Keeping) == 0, NeedNothing
}

// Keeps reports whether a pod on the node keeps the label: a guest, virt-handler, or a pod that selects by it, which a
// restarted kubelet would end. Anybody can create pods with any labels; at worst the label stays true.
func (o *Observed) Keeps(pod *corev1.Pod) bool {
	if o.Node == nil || o.DaemonSet == nil || podstatus.Terminal(pod) {
		return false // Without them nothing is marked.
	}
	if pod.Labels[v1.AppLabel] == layout.LauncherApp {
		return true
	}
	// Pods of a previous DaemonSet of the name count.
	selector, err := metav1.LabelSelectorAsSelector(o.DaemonSet.Spec.Selector)
	if pod.Namespace == o.DaemonSet.Namespace && (err != nil || selector.Matches(labels.Set(pod.Labels))) {
		return true
	}
	return fits(pod, o.Node) && !fits(pod, Mark(o.Node))
}

// Candidate reports whether virt-handler is away from a node with the label true: the kubelet offers the devices only
// while virt-handler serves them.
func Candidate(node *corev1.Node) bool {
	devices := node.Status.Allocatable[layout.ResourceTUN]
	return node.Labels[v1.NodeSchedulable] == yes && devices.IsZero()
}

// Mark returns the node with the label false.
func Mark(node *corev1.Node) *corev1.Node {
	marked := node.DeepCopy()
	marked.Labels[v1.NodeSchedulable] = no
	return marked
}

// wants reports whether the DaemonSet has a pod on the node, or will have one again. In doubt it is true.
func wants(ds *appsv1.DaemonSet, node *corev1.Node) bool {
	template := &ds.Spec.Template.Spec
	if namesLabel(template) {
		// A false label would keep virt-handler from coming back.
		return true
	}
	fits, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *template}).Match(node)
	if err != nil {
		return true
	}
	_, repelled := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, template.Tolerations, isPermanent, true)
	return fits && !repelled
}

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

// passing are prefixes of taints that Kubernetes adds and removes itself. A DaemonSet's pods tolerate most of them, and
// none means that a pod stays away.
var passing = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

func isPermanent(taint *corev1.Taint) bool {
	if taint.Effect != corev1.TaintEffectNoSchedule && taint.Effect != corev1.TaintEffectNoExecute {
		return false
	}
	return !slices.ContainsFunc(passing, func(prefix string) bool { return strings.HasPrefix(taint.Key, prefix) })
}

// fits reports whether a starting kubelet keeps the pod.
func fits(pod *corev1.Pod, node *corev1.Node) bool {
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return match && err == nil
}
