// Package podlimits chooses the limits of a VM's pod in a namespace that demands limits: a quota on limits.cpu or
// limits.memory admits no pod without them, and a limit range may default a limit below the pod's request. It must not
// change a limit that a pod already has.
package podlimits

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// defaultMemoryRatio is the ratio of limit to request in a namespace without the label.
const defaultMemoryRatio = 2.0

// Namespace has the rules of a namespace for its pods.
type Namespace struct {
	Labels map[string]string
	Quotas []corev1.ResourceQuota
	Ranges []corev1.LimitRange
}

// Need is the maximum that a pod's containers may use, below which no limit is chosen freely. Zero means their
// requests.
type Need struct {
	CPU, Memory resource.Quantity
}

// Set adds the missing limits that the namespace demands, or returns false and the pod unchanged if there are none.
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

// Beside reports whether a container has unwanted limits, which its namespace has demanded.
func Beside(has, want corev1.ResourceRequirements) bool {
	for name := range (Need{}).all() {
		_, limited := has.Limits[name]
		if _, wanted := want.Limits[name]; limited && !wanted {
			return true
		}
	}
	return false
}

// Keep adds a container's unwanted limits to the wanted resources, with the values of a new container: a limit can't be
// removed, and must not be smaller than the request.
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

// share is the ratio of limit to request.
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

type demand struct {
	asked bool
	// given and givenMost are the smallest and the largest default limit: of several limit ranges, the API server may
	// apply any first. most and ratio (of limit to request) are the largest that it admits; zero for none.
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

// smaller returns the smaller of a number and the list's; zero means none.
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

func larger(than float64, list corev1.ResourceList, name corev1.ResourceName) float64 {
	q := list[name]
	return max(than, q.AsApproximateFloat64())
}

// limit returns the limit for a container without one, false if none is demanded or the API server's default suffices.
func (d demand) limit(request, least resource.Quantity, share float64) (float64, bool) {
	requested := request.AsApproximateFloat64()
	if !d.asked || d.suffices(requested) {
		return 0, false
	}
	return d.bounded(max(requested*share, least.AsApproximateFloat64()), requested), true
}

// suffices reports whether the API server admits a container with that request and its own default limit.
func (d demand) suffices(requested float64) bool {
	return d.given > 0 && d.given >= requested && d.bounded(d.givenMost, requested) >= d.givenMost
}

func (d demand) bounded(limit, requested float64) float64 {
	if d.ratio > 0 {
		limit = min(limit, requested*d.ratio)
	}
	if d.most > 0 {
		limit = min(limit, d.most)
	}
	return max(limit, requested)
}

// withUnit rounds down to whole millicores or bytes, so as not to exceed the admitted value. Requests are whole
// units; the margin makes up for their binary fractions.
func withUnit(value float64, name corev1.ResourceName) resource.Quantity {
	const margin = 1e-6
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(int64(value*1000+margin), resource.DecimalSI)
	}
	return *resource.NewQuantity(int64(value+margin), resource.BinarySI)
}
