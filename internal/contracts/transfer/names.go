package transfer

import "drydock.dev/drydock/internal/contracts/layout"

// UploadName is the name of the worker pod of kind upload for a claim, and of
// the Service that leads to it on UploadPort. A claim's name may have dots and
// be long, a Service's may not: what does not fit is told apart by a hash.
func UploadName(claim string) string { return layout.HostName("cdi-upload-"+claim, claim) }
