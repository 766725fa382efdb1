package hotplug

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// RecordAnnotation holds the Record on a VMI (decision 110).
const RecordAnnotation = "drydock.dev/attachment-pods"

// Record is which attachment pods there should be. The last one that has a volume is
// the one that the volume should come from.
type Record struct {
	// Generation is the number of the youngest attachment pod that was ever recorded.
	Generation int             `json:"generation,omitempty"`
	Pods       []AttachmentPod `json:"holders,omitempty"`
	// Incoming are those at the target of a migration; nil without.
	Incoming *Incoming `json:"incoming,omitempty"`
}

// AttachmentPod is an attachment pod that should exist.
type AttachmentPod struct {
	Name string `json:"name"`
	// UID is that of its pod, once that has been seen to run. From then on a pod of
	// the name with another UID is foreign, and the pod is never made again.
	UID     types.UID `json:"uid,omitempty"`
	Volumes []Volume  `json:"volumes"`
}

// ReadRecord reads the record from a VMI's annotations; a VMI without one has
// an empty record.
func ReadRecord(annotations map[string]string) (Record, error) {
	var r Record
	text, ok := annotations[RecordAnnotation]
	if !ok {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, fmt.Errorf("reading the annotation %s: %w", RecordAnnotation, err)
	}
	return r, nil
}

// Text is the annotation's value, empty when there is nothing to keep.
func (r Record) Text() string {
	if r.Generation == 0 && len(r.all()) == 0 {
		return ""
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("a record of strings and numbers can't be written: %v", err))
	}
	return string(text)
}

// all are the attachment pods that there should be, at the target of a migration as well.
func (r Record) all() []AttachmentPod {
	if r.Incoming == nil {
		return r.Pods
	}
	return slices.Concat(r.Pods, r.Incoming.Pods)
}

// Names reports whether the record names the pod.
func (r Record) Names(pod string) bool {
	return slices.ContainsFunc(r.all(), func(h AttachmentPod) bool { return h.Name == pod })
}

// Has reports whether the record names this very pod.
func (r Record) Has(name string, uid types.UID) bool {
	return slices.ContainsFunc(r.Pods, func(h AttachmentPod) bool { return h.Name == name && h.UID == uid })
}

// foreign reports whether a pod has the name of a recorded one and is not that.
func (p *planning) foreign(pod *Pod) bool {
	return slices.ContainsFunc(p.record.all(), func(h AttachmentPod) bool {
		return h.Name == pod.Name && h.UID != "" && h.UID != pod.UID
	})
}

// noteUIDs records the pods that run. A pod that is seen here was made by
// virt-controller, since only it may give a pod its labels; but as soon as it is
// used, it counts by its UID alone.
func (p *planning) noteUIDs() { p.noteUIDsOf(p.record.Pods) }

func (p *planning) noteUIDsOf(list []AttachmentPod) {
	for i := range list {
		h := &list[i]
		if pod := p.pod(h.Name); h.UID == "" && pod != nil && pod.Alive() && p.filled(h) && !p.withheldAtTarget(h) {
			h.UID = pod.UID
		}
	}
}

// add records one more attachment pod.
func (p *planning) add(volumes []Volume) {
	if len(volumes) > 0 {
		p.record.Pods = append(p.record.Pods, p.named(volumes))
	}
}

// named is an attachment pod under a name that was never used. Beside the
// record, the pods that are seen tell which names were: somebody may have
// removed the annotation.
func (p *planning) named(volumes []Volume) AttachmentPod {
	for i := range p.Pods {
		p.record.Generation = max(p.record.Generation, generation(p.Prefix, p.Pods[i].Name))
	}
	for i := range p.entries {
		p.record.Generation = max(p.record.Generation, generation(p.Prefix, p.entries[i].PodName))
	}
	p.record.Generation++
	return AttachmentPod{Name: p.Prefix + "-" + strconv.Itoa(p.record.Generation), Volumes: volumes}
}

// generation is the number at the end of an attachment pod's name, 0 if there is none.
func generation(prefix, name string) int {
	number, ok := strings.CutPrefix(name, prefix+"-")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return n
}
