// Package transfer is the contract between virt-controller and the worker pods
// that fill claims: what a worker is to do, how far it is and how it ended.
//
// It owns the messages, ports and paths. It must import nothing but layout and the
// standard library: the worker links it, and the worker's memory is limited.
//
// A worker gets its Task as JSON in the environment variable TaskEnv; Secrets
// and ConfigMaps that the task needs are mounted at the paths below. While it
// runs it answers GET ProgressPath on ProgressPort with Progress as JSON, by
// plain HTTP: nothing in it is secret and no decision depends on it. Its container's
// termination message is a Result as JSON, after a failure as well.
//
// A worker's container is restarted in its pod (restartPolicy OnFailure), with
// the kubelet's back-off, as long as its Result says that trying again can help.
// It exits 0 only when the target is whole. WorkDir is an emptyDir and survives
// the container; what is needed to go on after a restart is kept there or, on a
// file system target, beside the image.
package transfer

// Places in a worker's pod.
const (
	// TaskEnv is the environment variable that holds the Task.
	TaskEnv = "DRYDOCK_TRANSFER"
	// TargetDir is where a claim with a file system is mounted; the image becomes
	// TargetDir/disk.img by a rename, when it is whole.
	TargetDir = "/data"
	// TargetDevice is where a block claim is.
	TargetDevice = "/dev/cdi-block-volume"
	// SourceDir and SourceDevice are the source claim of a clone (read-only).
	SourceDir    = "/source"
	SourceDevice = "/dev/cdi-source-volume"
	// WorkDir is an emptyDir for journals.
	WorkDir = "/work"
	// CredentialsDir holds the source's Secret: accessKeyId and secretKey.
	CredentialsDir = "/credentials"
	// HeadersDir holds one folder per Secret of extra headers.
	HeadersDir = "/headers"
	// CADir holds the source's certificate authorities (PEM files), from its
	// ConfigMap.
	CADir = "/ca"
	// TLSDir holds tls.crt, tls.key and ca.crt of a worker that serves uploads, or of one
	// that sends a clone to it.
	TLSDir = "/tls"
)

// Ports of a worker.
const (
	ProgressPort = 8080
	ProgressPath = "/progress"
	// UploadPort is where a worker of kind upload listens, with mutual TLS.
	UploadPort = 8443
	// AwaitPortFlag has the worker's program do nothing but wait until a port listens.
	AwaitPortFlag = "-await-port"
	// UploadPath takes the image as the body of a POST or PUT; the answer comes
	// when the image is whole. UploadAsyncPath answers as soon as the body is
	// read. HEAD on either reports whether the worker takes an upload.
	UploadPath      = "/v1beta1/upload"
	UploadAsyncPath = "/v1beta1/upload-async"
	// UploadFormPath and UploadFormAsyncPath take the same as the file of a form
	// (multipart/form-data), as browsers send it.
	UploadFormPath      = "/v1beta1/upload-form"
	UploadFormAsyncPath = "/v1beta1/upload-form-async"
	// ClonePath takes what a clone source sends: a raw image, compressed by zstd.
	ClonePath = "/v1beta1/clone"
	// CloneSizeHeader is the disk's size in bytes, CloneSumTrailer the sha256 sum, in
	// hexadecimal, of the body: without it, the body was cut off.
	CloneSizeHeader = "Drydock-Disk-Size"
	CloneSumTrailer = "Drydock-Sha256"
	// CloneWindow is how far back the compression of a clone may look.
	CloneWindow = 4 << 20
)

// Kind is what a worker does.
type Kind string

const (
	// KindHTTP imports from an HTTP or HTTPS server.
	KindHTTP Kind = "http"
	// KindRegistry imports the file in /disk of a container image.
	KindRegistry Kind = "registry"
	// KindBlank makes an empty disk.
	KindBlank Kind = "blank"
	// KindUpload serves an upload; also the receiving end of a clone.
	KindUpload Kind = "upload"
	// KindCloneSource sends the claim at SourceDir or SourceDevice to a worker of KindUpload.
	KindCloneSource Kind = "clone-source"
)

// Task is what one worker is to do.
type Task struct {
	Kind Kind `json:"kind"`
	// URL is the source of KindHTTP (http, https), KindRegistry (docker://… or
	// oci-archive:///path) and, for KindCloneSource, where it sends (https).
	URL string `json:"url,omitempty"`
	// Checksum is "<algorithm>:<hex>" (sha256, sha512, md5, sha1) of the file as
	// the source serves it, empty when the user named none.
	Checksum string `json:"checksum,omitempty"`
	// Credentials, Headers, CA and TLS say which of the folders above are mounted.
	Credentials   bool     `json:"credentials,omitempty"`
	Headers       []string `json:"headers,omitempty"` // "Name: value", as the user wrote them
	SecretHeaders bool     `json:"secretHeaders,omitempty"`
	CA            bool     `json:"ca,omitempty"`
	// Insecure lets a registry be asked by plain HTTP or with an unknown certificate, and an HTTPS server with an
	// unknown one.
	Insecure bool `json:"insecure,omitempty"`
	// Archive says that the content is a tar file to be unpacked into a file system
	// claim (contentType archive) and not a disk image.
	Archive bool `json:"archive,omitempty"`
	// Block says that the target (of KindCloneSource: the source) is a block claim.
	Block bool `json:"block,omitempty"`
	// Size is the size of the disk in bytes that the guest is to see: the image is
	// grown to it, and refused when it is larger. What the user requested, without
	// what the file system takes for itself.
	Size int64 `json:"size"`
	// KeepContent has a worker of KindUpload refuse a target that holds something: nobody has asked for it to
	// be replaced.
	KeepContent bool `json:"keepContent,omitempty"`
	// Preallocate writes or reserves every block of the target.
	Preallocate bool `json:"preallocate,omitempty"`
	// DeniedNetworks and AllowedNetworks are prefixes of addresses that a source must
	// not be at, beside those that none may, and may be at whatever else is denied:
	// the administrator's.
	DeniedNetworks  []string `json:"deniedNetworks,omitempty"`
	AllowedNetworks []string `json:"allowedNetworks,omitempty"`
	// StallSeconds is for how long a source may give no byte; 0 is a minute.
	StallSeconds int64 `json:"stallSeconds,omitempty"`
}

// Progress is how far a worker is. It never goes back within a DataVolume: a
// worker that goes on after a restart begins where it is.
type Progress struct {
	// Total and Done are bytes of the source; Total is 0 while it is not known.
	Total int64 `json:"total"`
	Done  int64 `json:"done"`
	// SecondsLeft is an estimate from the last seconds, -1 while there is none.
	SecondsLeft int64 `json:"secondsLeft"`
	// Step is what the worker does, in words for a condition's message:
	// "connecting to host", "copying", "converting", "waiting for an upload".
	Step string `json:"step"`
	// Ready says of an upload worker that it takes an upload now.
	Ready bool `json:"ready,omitempty"`
}

// Reason says in one word how a worker ended.
type Reason string

// Reasons of Result. Those for which Permanent is true will not get better by trying again.
const (
	ReasonCompleted         Reason = "Completed"
	ReasonSourceUnreachable Reason = "SourceUnreachable"
	// ReasonSourceRefused is a 401, 403, 404 or 410 of the server, or a registry's counterpart.
	ReasonSourceRefused Reason = "SourceRefused"
	// ReasonUntrusted means that the server's certificate is not trusted.
	ReasonUntrusted Reason = "Untrusted"
	// ReasonCut means that the content ended too early or stalled.
	ReasonCut              Reason = "Cut"
	ReasonChecksumMismatch Reason = "ChecksumMismatch"
	// ReasonInvalidImage means that the content is not an image, damaged, of an unknown format or
	// compression, or a decompression bomb.
	ReasonInvalidImage Reason = "InvalidImage"
	// ReasonUnsafeImage means that the image refers to another file.
	ReasonUnsafeImage Reason = "UnsafeImage"
	// ReasonTooLarge means that the disk in the image is larger than the claim.
	ReasonTooLarge Reason = "TooLarge"
	// ReasonNoSpace means that the target's file system cannot take the image.
	ReasonNoSpace Reason = "NoSpace"
	// ReasonLimit means that reading the image cost more memory or time than allowed.
	ReasonLimit Reason = "LimitExceeded"
	// ReasonHasContent means that the target holds something that nobody has asked to replace.
	ReasonHasContent Reason = "HasContent"
	// ReasonInternal is everything else, a failed write to the target, say.
	ReasonInternal Reason = "Error"
)

// Permanent reports whether the same task would end the same way again.
func (r Reason) Permanent() bool {
	switch r {
	case ReasonChecksumMismatch, ReasonInvalidImage, ReasonUnsafeImage, ReasonTooLarge, ReasonLimit, ReasonHasContent:
		return true
	}
	return false
}

// Result says how a worker's container ended.
type Result struct {
	Reason Reason `json:"reason"`
	// Message is a sentence for the DataVolume's owner: what is wrong and what to
	// do about it. Empty when Reason is Completed.
	Message string `json:"message,omitempty"`
	// VirtualSize is the size in bytes of the disk that was written.
	VirtualSize int64 `json:"virtualSize,omitempty"`
	// Read is how many bytes this container read from the source, and Resumed how
	// many it found written by an earlier one.
	Read    int64 `json:"read,omitempty"`
	Resumed int64 `json:"resumed,omitempty"`
}
