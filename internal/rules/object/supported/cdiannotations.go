package supported

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"kubevirt.io/containerized-data-importer-api/pkg/apis/core"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

// CDI's API module names two of its annotations. The others come from the practice of CDI's users, and those
// that are not in the table of DataVolumes cause a warning: no test compares the table with a growing list.

const (
	cdiAnnotations    = core.GroupName + "/"
	cdiStorage        = cdiAnnotations + "storage."
	cdiImports        = cdiStorage + "import."
	cdiCheckpoints    = cdiStorage + "checkpoint."
	bySource          = "spec.source says what the claim is filled from"
	wholeDisk         = "a disk is imported whole; import it when its VM does not run any more"
	noVDDK            = "there is no import by VDDK"
	recordOfCDI       = "CDI keeps records by it, and asks for nothing"
	makeADataVolume   = "of a claim; make a DataVolume with the source"
	unknownAnnotation = "Drydock does not know this annotation of CDI's"
)

var dataVolumeAnnotationTable = table{
	layout.AnnImmediate:             noted("by being there: its worker may be the claim's first consumer"),
	datavolume.AnnAdoption:          noted("`true`: it takes a claim of its name that has no owner, as it is"),
	datavolume.AnnPrePopulated:      noted("its own name: the claim is filled already, by somebody who brings it; no claim is made, whatever the value"),
	datavolume.AnnChecksum:          noted("as `source.http.checksum`"),
	datavolume.AnnRetain:            noted("`true`: its worker pods stay when they have ended"),
	datavolume.AnnPodNetworks:       noted("of the worker pods in its namespace, as Multus knows it"),
	datavolume.AnnPodDefaultNetwork: noted("of the worker pods in its namespace, as Multus knows it"),
	datavolume.AnnPodIstio:          noted("of the worker pods in its namespace; `false` if not set, since a pod with a proxy does not end"),
	datavolume.AnnPodLinkerd:        noted("of the worker pods in its namespace; `disabled` if not set, since a pod with a proxy does not end"),

	cdiv1.AnnCheckStaticVolume: no("a volume that exists and has a disk would be overwritten; make a claim of it, and annotate that with " +
		datavolume.AnnAdoption + "=true"),
	cdiCheckpoints + "previous": no(wholeDisk),
	cdiCheckpoints + "current":  no(wholeDisk),
	cdiCheckpoints + "final":    no(wholeDisk),

	cdiStorage + "usePopulator":            idle("a worker writes to the claim itself, with any class").withOnly("false"),
	cdiStorage + "deleteAfterCompletion":   idle("a DataVolume stays when its claim is filled").withOnly("false"),
	cdiStorage + "pod.priorityclassname":   idle("spec.priorityClassName has the class of the worker pods"),
	cdiStorage + "preallocation.requested": idle("spec.preallocation asks for it"),
	cdiAnnotations + "cloneType":           idle("the storage driver clones where it can, and workers copy elsewhere"),
	cdiAnnotations + "permissiveClone":     idle("a clone is judged by whether its disk fits"),
	layout.AnnContentType:                  idle("spec.contentType says it"),
	layout.AnnUploadTarget:                 idle("it is read of claims without a DataVolume; spec.source.upload asks for it here"),
	datavolume.AnnPopulatedFor:             idle("it is read of claims"),
	cdiImports + "source":                  idle(bySource),
	cdiImports + "endpoint":                idle(bySource),
	cdiImports + "secretName":              idle(bySource),
	cdiImports + "certConfigMap":           idle(bySource),
	cdiImports + "registryImportMethod":    idle(bySource),
	cdiImports + "requiresScratch":         idle("an import takes space of its own where its format needs it"),
	cdiStorage + "pod.vddk.initimageurl":   idle(noVDDK),
	cdiStorage + "pod.vddk.extraargs":      idle(noVDDK),
	cdiStorage + "clone.token":             idle(recordOfCDI),
	cdiStorage + "extended.clone.token":    idle(recordOfCDI),
}

// claimAnnotationTable documents annotations and labels of claims and storage classes, which admission does not
// see.
var claimAnnotationTable = table{
	layout.AnnImmediate:                    noted("of a claim; as of its DataVolume, or for the worker of an upload"),
	datavolume.AnnAdoption:                 noted("of a claim; `true` lets a DataVolume of its name have it as it is"),
	datavolume.AnnPopulatedFor:             noted("of a claim; names the DataVolume that need not fill it"),
	layout.AnnUploadTarget:                 noted("of a claim without a DataVolume; a worker takes an upload for it"),
	layout.AnnContentType:                  noted("of a claim that takes an upload; `archive` is unpacked"),
	datavolume.AnnPodNetworks:              noted("of a claim that takes an upload, for its worker pod"),
	datavolume.AnnPodDefaultNetwork:        noted("of a claim that takes an upload, for its worker pod"),
	datavolume.AnnPodIstio:                 noted("of a claim that takes an upload, for its worker pod"),
	datavolume.AnnPodLinkerd:               noted("of a claim that takes an upload, for its worker pod"),
	cdiImports + "endpoint":                no(makeADataVolume),
	cdiImports + "source":                  no(makeADataVolume),
	"k8s.io/CloneRequest":                  no("of a claim; make a DataVolume whose source is the claim"),
	cdiAnnotations + "applyStorageProfile": no("a label of a claim; make a DataVolume, with `storage`"),
	cdiAnnotations + "clone-strategy":      no("of a storage class; the driver clones where it can"),
	datavolume.AnnDefaultVirtClass:         noted("of a storage class; DataVolumes take it before the cluster's default"),
}

// DataVolumeAnnotations returns errors for the unsupported annotations, at path, of a DataVolume or a template.
func DataVolumeAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	return annotated(dataVolumeAnnotationTable, annotations, path).errs
}

// DataVolumeAnnotationWarnings returns warnings for the annotations of a DataVolume that have no effect.
func DataVolumeAnnotationWarnings(annotations map[string]string, path *field.Path) []string {
	w := annotated(dataVolumeAnnotationTable, annotations, path)
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if _, found := dataVolumeAnnotationTable[name]; !found && strings.HasPrefix(name, cdiAnnotations) {
			w.judgeSet(idle(unknownAnnotation), reflect.ValueOf(annotations[name]), path.Key(name))
		}
	}
	return bounded(w.warnings)
}
