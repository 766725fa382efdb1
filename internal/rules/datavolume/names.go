package datavolume

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/containerized-data-importer-api/pkg/apis/core"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
)

// Labels and annotations as users of CDI know them; those that other components need as
// well are package layout's.
const (
	group = core.GroupName

	// AnnAdoption on a claim or DataVolume lets a DataVolume take a claim of its name
	// that is filled already.
	AnnAdoption = group + "/allowClaimAdoption"
	// AnnPopulatedFor on a claim names the DataVolume that needs not fill it.
	AnnPopulatedFor = group + "/storage.populatedFor"
	// AnnPrePopulated on a DataVolume names the claim that is filled already. With any other value no claim is made
	// either: somebody brings one.
	AnnPrePopulated = cdiv1.AnnPrePopulated
	// AnnRetain on a DataVolume keeps its worker pods when they have ended, if it is "true".
	AnnRetain = group + "/storage.pod.retainAfterCompletion"
	// AnnChecksum on a DataVolume is "<algorithm>:<hex>" of the file as its source
	// serves it. The API has no field for it.
	AnnChecksum = group + "/storage.import.checksum"

	// Those four on a DataVolume, or on a claim that takes an upload, are its worker pods': which networks they are on,
	// and whether service meshes put a proxy into them.
	AnnPodNetworks       = "k8s.v1.cni.cncf.io/networks"
	AnnPodDefaultNetwork = "v1.multus-cni.io/default-network"
	AnnPodIstio          = "sidecar.istio.io/inject"
	AnnPodLinkerd        = "linkerd.io/inject"

	// AnnCloneAllowed on a DataVolume is the source, "<kind>/<namespace>/<name>", that
	// its creator may read. Only virt-api writes it.
	AnnCloneAllowed = "drydock.dev/clone-allowed"

	// AnnRestarts on a worker pod counts the restarts of the workers before it.
	AnnRestarts = "drydock.dev/restarts-before"
	// AnnTarget on a source pod, and on the claim that a snapshot is copied from, is the DataVolume that it is for,
	// "<namespace>/<name>".
	AnnTarget = "drydock.dev/datavolume"

	// LabelApp is on everything that is made for a DataVolume.
	LabelApp      = "app"
	LabelAppValue = "containerized-data-importer"

	// Finalizer stays on a DataVolume as long as it has a pod or a claim in another namespace.
	Finalizer = group + "/dataVolumeFinalizer"
)

// WorkerAppLabel is the value of the label kubevirt.io of worker pods, by which
// they are in virt-controller's cache.
const WorkerAppLabel = "virt-importer"

// Values of the label cdi.kubevirt.io.
const (
	LabelComponent    = group
	ComponentImporter = "importer"
	ComponentUpload   = "cdi-upload-server"
	ComponentCloner   = "cdi-clone-source"
)

// LabelService leads a Service to its worker.
const LabelService = group + "/storage.upload.target-service"

// WorkerName is the name of the pod that fills the DataVolume's claim.
func WorkerName(dv *cdiv1.DataVolume) string {
	if serves(dv) {
		return transfer.UploadName(dv.Name)
	}
	return importerName(dv.Name)
}

func importerName(dv string) string {
	name := "importer-" + dv
	return layout.HostName(name, name)
}

// UploadWorkerName is the name of the pod that takes a claim's upload.
func UploadWorkerName(claim metav1.Object) string { return transfer.UploadName(claim.GetName()) }

// SourcePodName is the name of the pod that reads a clone's source. It is in the
// source's namespace, where DataVolumes of several others may be at work.
func SourcePodName(dv *cdiv1.DataVolume) string { return string(dv.UID) + "-source-pod" }

// SecretName is the name of the Secret with a worker's certificate. The UID is
// that of the Secret's owner, so that one that is about to go with a former
// owner of the same name is not taken for this one's.
func SecretName(worker string, uid types.UID) string {
	return worker + "-" + strings.SplitN(string(uid), "-", 2)[0]
}

// serves reports whether the worker takes what another sends.
func serves(dv *cdiv1.DataVolume) bool {
	s := dv.Spec.Source
	return dv.Spec.SourceRef != nil || s != nil && (s.Upload != nil || s.PVC != nil || s.Snapshot != nil)
}
