package defaults

import (
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// DataVolume notes the source in another namespace that the creator may read, if mayClone is true, and removes a
// user's own note. old is nil on creation.
func DataVolume(dv, old *cdiv1.DataVolume, mayClone bool) {
	note := ""
	switch {
	case old != nil:
		note = old.Annotations[datavolume.AnnCloneAllowed]
	case mayClone:
		note = datavolume.AllowedSource(dv)
	}
	if note == "" {
		delete(dv.Annotations, datavolume.AnnCloneAllowed)
		return
	}
	if dv.Annotations == nil {
		dv.Annotations = map[string]string{}
	}
	dv.Annotations[datavolume.AnnCloneAllowed] = note
}
