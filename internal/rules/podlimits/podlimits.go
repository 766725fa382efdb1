// Package podlimits says which limits a pod of a virtual machine gets in a namespace that asks for limits: a quota on
// limits.cpu or limits.memory admits no pod without them, and a limit range may give a pod less than it requests.
//
// It owns these limits and nothing else. It must not touch a limit that a pod has: somebody wants that.
package podlimits

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// defaultMemoryRatio is how many times the requested memory the limit is, where the namespace has no label of its own.
const defaultMemoryRatio = 2.0

// Namespace is what a namespace asks of its pods.
type Namespace struct {
	Labels map[string]string
	Quotas []corev1.ResourceQuota
	Ranges []corev1.LimitRange
}

// Need is the most that a pod's containers may come to use: no limit below that is chosen freely. Zero is for what they request.
type Need struct {
	CPU, Memory resource.Quantity
}

// Set gives the containers of a pod the limits that the namespace asks for and that they lack. It reports false, and the pod
// as it is, when there is none.
func Set(pod *corev1.Pod, namespace Namespace, need Need) (*corev1.Pod, bool) {
	out, set := pod.DeepCopy(), false
	for i := range out.Spec.Containers {
		resources := &out.Spec.Containers[i].Resources
		for name, least := range need.all() {
			request, requested := resources.Requests[name]
			if _, limited := resources.Limits[name]; limited || !requested {
				continue
			}
			if limit, missing := namespace.demand(name).limit(request, least, namespace.share(name)); missing {
				give(resources, name, withUnit(limit, name))
				set = true
			}
		}
	}
	return out, set
}

// Beside reports whether a container has limits that are not wanted: its namespace has asked for them.
func Beside(has, want corev1.ResourceRequirements) bool {
	for name := range (Need{}).all() {
		_, limited := has.Limits[name]
		if _, wanted := want.Limits[name]; limited && !wanted {
			return true
		}
	}
	return false
}

// Keep adds the limits that a container has, and that are not wanted, to what it is to have: a limit can't be taken back, and
// must not be smaller than what is requested. They are those that a new container would get.
func Keep(has, want corev1.ResourceRequirements, namespace Namespace, need Need) corev1.ResourceRequirements {
	out := *want.DeepCopy()
	for name, least := range need.all() {
		limit, limited := has.Limits[name]
		request, requested := out.Requests[name]
		if _, wanted := out.Limits[name]; wanted || !limited || !requested {
			continue
		}
		d, kept := namespace.demand(name), limit.AsApproximateFloat64()
		if next, missing := d.limit(request, least, namespace.share(name)); missing {
			limit = withUnit(next, name)
		} else if next := d.bounded(kept, request.AsApproximateFloat64()); next != kept {
			limit = withUnit(next, name)
		}
		give(&out, name, limit)
	}
	return out
}

func (n Need) all() map[corev1.ResourceName]resource.Quantity {
	return map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: n.CPU, corev1.ResourceMemory: n.Memory}
}

func give(resources *corev1.ResourceRequirements, name corev1.ResourceName, limit resource.Quantity) {
	if resources.Limits == nil {
		resources.Limits = corev1.ResourceList{}
	}
	resources.Limits[name] = limit
}

// share is how many times a request the limit is.
func (n Namespace) share(name corev1.ResourceName) float64 {
	if name != corev1.ResourceMemory {
		return 1
	}
	ratio, err := strconv.ParseFloat(n.Labels[v1.AutoMemoryLimitsRatioLabel], 64)
	if err != nil || math.IsNaN(ratio) || math.IsInf(ratio, 0) || ratio < 1 {
		return defaultMemoryRatio
	}
	return ratio
}

// demand is what quotas and limit ranges ask for of one resource.
type demand struct {
	asked bool
	// given and givenMost are the smallest and the largest limit that the API server may give a container without one: of several
	// limit ranges any may be the first. most is the largest that it admits, and ratio how many times the request it may be; zero
	// for none.
	given, givenMost, most, ratio float64
}

func (n Namespace) demand(name corev1.ResourceName) demand {
	var d demand
	for i := range n.Quotas {
		_, limits := n.Quotas[i].Spec.Hard["limits."+name]
		d.asked = d.asked || limits
	}
	for i := range n.Ranges {
		for _, item := range n.Ranges[i].Spec.Limits {
			if item.Type == corev1.LimitTypeContainer {
				d.given, d.givenMost = smaller(d.given, item.Default, name), larger(d.givenMost, item.Default, name)
			} else if item.Type != corev1.LimitTypePod {
				continue
			}
			d.most, d.ratio = smaller(d.most, item.Max, name), smaller(d.ratio, item.MaxLimitRequestRatio, name)
		}
	}
	d.asked = d.asked || d.given > 0 || d.most > 0 || d.ratio > 0
	return d
}

// smaller is the smaller of a number and that of a list, zero meaning none.
func smaller(than float64, list corev1.ResourceList, name corev1.ResourceName) float64 {
	q, has := list[name]
	switch value := q.AsApproximateFloat64(); {
	case !has:
		return than
	case than == 0:
		return value
	default:
		return min(than, value)
	}
}

// larger is the larger of a number and that of a list.
func larger(than float64, list corev1.ResourceList, name corev1.ResourceName) float64 {
	q := list[name]
	return max(than, q.AsApproximateFloat64())
}

// limit is the limit of a container that has none. It reports false where none is asked for, or the one that the API server
// gives will do.
func (d demand) limit(request, least resource.Quantity, share float64) (float64, bool) {
	requested := request.AsApproximateFloat64()
	if !d.asked || d.suffices(requested) {
		return 0, false
	}
	return d.bounded(max(requested*share, least.AsApproximateFloat64()), requested), true
}

// suffices reports whether the API server admits a container that requests so much with the limit that it gives.
func (d demand) suffices(requested float64) bool {
	return d.given > 0 && d.given >= requested && d.bounded(d.givenMost, requested) >= d.givenMost
}

// bounded is a limit as it is admitted, for a container that requests so much.
func (d demand) bounded(limit, requested float64) float64 {
	if d.ratio > 0 {
		limit = min(limit, requested*d.ratio)
	}
	if d.most > 0 {
		limit = min(limit, d.most)
	}
	return max(limit, requested)
}

// withUnit is a quantity of a resource, rounded down: it must not exceed what was admitted. Requests are whole units themselves.
func withUnit(value float64, name corev1.ResourceName) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(int64(math.Round(value*1000)), resource.DecimalSI)
	}
	return *resource.NewQuantity(int64(value), resource.BinarySI)
}
