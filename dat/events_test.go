package dat_test

import (
	"testing"

	"kdapl/dat"
)

var eventTables = []vocabTable{
	{prefixes: []string{"DAT_"}, values: []vocabValue{
		{dat.DTOCompletion, "DAT_DTO_COMPLETION_EVENT", 0x00001},
		{dat.RMRBindCompletion, "DAT_RMR_BIND_COMPLETION_EVENT", 0x01001},
		{dat.ConnectionRequest, "DAT_CONNECTION_REQUEST_EVENT", 0x02001},
		{dat.ConnectionEstablished, "DAT_CONNECTION_EVENT_ESTABLISHED", 0x04001},
		{dat.ConnectionPeerRejected, "DAT_CONNECTION_EVENT_PEER_REJECTED", 0x04002},
		{dat.ConnectionNonPeerRejected, "DAT_CONNECTION_EVENT_NON_PEER_REJECTED", 0x04003},
		{dat.ConnectionAcceptCompletionError, "DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR", 0x04004},
		{dat.ConnectionDisconnected, "DAT_CONNECTION_EVENT_DISCONNECTED", 0x04005},
		{dat.ConnectionBroken, "DAT_CONNECTION_EVENT_BROKEN", 0x04006},
		{dat.ConnectionTimedOut, "DAT_CONNECTION_EVENT_TIMED_OUT", 0x04007},
		{dat.ConnectionUnreachable, "DAT_CONNECTION_EVENT_UNREACHABLE", 0x04008},
		{dat.AsyncErrorEVDOverflow, "DAT_ASYNC_ERROR_EVD_OVERFLOW", 0x08001},
		{dat.AsyncErrorIACatastrophic, "DAT_ASYNC_ERROR_IA_CATASTROPHIC", 0x08002},
		{dat.AsyncErrorEPBroken, "DAT_ASYNC_ERROR_EP_BROKEN", 0x08003},
		{dat.AsyncErrorTimedOut, "DAT_ASYNC_ERROR_TIMED_OUT", 0x08004},
		{dat.AsyncErrorProviderInternal, "DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR", 0x08005},
		{dat.HADownTo1, "DAT_HA_DOWN_TO_1", 0x08101},
		{dat.HAUpToMultiPath, "DAT_HA_UP_TO_MULTI_PATH", 0x08102},
		{dat.AsyncWatermark, "DAT_ASYNC_WATERMARK", 0x08201},
		{dat.SoftwareEvent, "DAT_SOFTWARE_EVENT", 0x10001},
		{dat.ExtensionEvent, "DAT_EXTENSION_EVENT", 0x20000},
		{dat.IBExtensionRangeBase, "DAT_IB_EXTENSION_RANGE_BASE", 0x40000},
		{dat.IBDTOEvent, "DAT_IB_DTO_EVENT", 0x40000},
		{dat.IBUDConnectionRequest, "DAT_IB_UD_CONNECTION_REQUEST_EVENT", 0x40001},
		{dat.IBUDConnectionEstablished, "DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED", 0x40002},
		{dat.IBUDConnectionReject, "DAT_IB_UD_CONNECTION_REJECT_EVENT", 0x40003},
		{dat.IBUDConnectionError, "DAT_IB_UD_CONNECTION_ERROR_EVENT", 0x40004},
		{dat.IBCollectiveEvent, "DAT_IB_COLLECTIVE_EVENT", 0x40005},
		{dat.IWExtensionRangeBase, "DAT_IW_EXTENSION_RANGE_BASE", 0x80000},
	}, aliases: map[string]string{"DAT_IB_EXTENSION_RANGE_BASE": "IB_DTO_EVENT"}},
	{prefixes: []string{"DAT_EVD_"}, suffix: "_FLAG", values: []vocabValue{
		{dat.StreamSoftware, "DAT_EVD_SOFTWARE_FLAG", 0x001},
		{dat.StreamConnectionRequest, "DAT_EVD_CR_FLAG", 0x010},
		{dat.StreamDTO, "DAT_EVD_DTO_FLAG", 0x020},
		{dat.StreamConnection, "DAT_EVD_CONNECTION_FLAG", 0x040},
		{dat.StreamRMRBind, "DAT_EVD_RMR_BIND_FLAG", 0x080},
		{dat.StreamAsync, "DAT_EVD_ASYNC_FLAG", 0x100},
		{dat.StreamDefault, "DAT_EVD_DEFAULT_FLAG", 0x1F0},
		{dat.StreamExtensionBase, "DAT_EVD_EXTENSION_BASE", 0x200},
	}, unions: []string{"DAT_EVD_DEFAULT_FLAG"}},
	{prefixes: []string{"DAT_", "DTO_", "ERR_"}, values: []vocabValue{
		{dat.StatusSuccess, "DAT_DTO_SUCCESS", 0},
		{dat.StatusFlushed, "DAT_DTO_ERR_FLUSHED", 1},
		{dat.StatusLocalLength, "DAT_DTO_ERR_LOCAL_LENGTH", 2},
		{dat.StatusLocalEP, "DAT_DTO_ERR_LOCAL_EP", 3},
		{dat.StatusLocalProtection, "DAT_DTO_ERR_LOCAL_PROTECTION", 4},
		{dat.StatusBadResponse, "DAT_DTO_ERR_BAD_RESPONSE", 5},
		{dat.StatusRemoteAccess, "DAT_DTO_ERR_REMOTE_ACCESS", 6},
		{dat.StatusRemoteResponder, "DAT_DTO_ERR_REMOTE_RESPONDER", 7},
		{dat.StatusTransport, "DAT_DTO_ERR_TRANSPORT", 8},
		{dat.StatusReceiverNotReady, "DAT_DTO_ERR_RECEIVER_NOT_READY", 9},
		{dat.StatusPartialPacket, "DAT_DTO_ERR_PARTIAL_PACKET", 10},
		{dat.StatusRMROperationFailed, "DAT_RMR_OPERATION_FAILED", 11},
		{dat.StatusLocalMMError, "DAT_DTO_ERR_LOCAL_MM_ERROR", 12},
	}},
	{prefixes: []string{"DAT_", "IB_", "DTO_"}, values: []vocabValue{
		{dat.OpSend, "DAT_DTO_SEND", 0},
		{dat.OpRDMAWrite, "DAT_DTO_RDMA_WRITE", 1},
		{dat.OpRDMARead, "DAT_DTO_RDMA_READ", 2},
		{dat.OpReceive, "DAT_DTO_RECEIVE", 3},
		{dat.OpReceiveWithInvalidate, "DAT_DTO_RECEIVE_WITH_INVALIDATE", 4},
		{dat.OpBindMW, "DAT_DTO_BIND_MW", 5},
		{dat.OpLMRFMR, "DAT_DTO_LMR_FMR", 6},
		{dat.OpLMRInvalidate, "DAT_DTO_LMR_INVALIDATE", 7},
		{dat.OpRDMAWriteImmediate, "DAT_IB_DTO_RDMA_WRITE_IMMED", 8},
		{dat.OpReceiveImmediate, "DAT_IB_DTO_RECV_IMMED", 9},
		{dat.OpFetchAdd, "DAT_IB_DTO_FETCH_ADD", 10},
		{dat.OpCompareSwap, "DAT_IB_DTO_CMP_SWAP", 11},
		{dat.OpReceiveMessageImmediate, "DAT_IB_DTO_RECV_MSG_IMMED", 12},
		{dat.OpSendUD, "DAT_IB_DTO_SEND_UD", 13},
		{dat.OpReceiveUD, "DAT_IB_DTO_RECV_UD", 14},
		{dat.OpReceiveUDImmediate, "DAT_IB_DTO_RECV_UD_IMMED", 15},
		{dat.OpCollective, "DAT_IB_DTO_COLLECTIVES", 16},
	}},
	{prefixes: []string{"DAT_"}, values: []vocabValue{
		{dat.ReasonIACatastrophic, "DAT_IA_CATASTROPHIC_ERROR", 3 << 8},
		{dat.ReasonIAOther, "DAT_IA_OTHER_ERROR", 3<<8 + 1},
		{dat.ReasonEPTransferTo, "DAT_EP_TRANSFER_TO_ERROR", 1 << 8},
		{dat.ReasonEPOther, "DAT_EP_OTHER_ERROR", 1<<8 + 1},
		{dat.ReasonEPSoftHighWatermark, "DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT", 1<<8 + 2},
		{dat.ReasonEVDOverflow, "DAT_EVD_OVERFLOW_ERROR", 2 << 8},
		{dat.ReasonEVDOther, "DAT_EVD_OTHER_ERROR", 2<<8 + 1},
		{dat.ReasonSRQTransferTo, "DAT_SRQ_TRANSFER_TO_ERROR", 9 << 8},
		{dat.ReasonSRQOther, "DAT_SRQ_OTHER_ERROR", 9<<8 + 1},
		{dat.ReasonSRQLowWatermark, "DAT_SRQ_LOW_WATERMARK_EVENT", 9<<8 + 2},
		{dat.ReasonLMROther, "DAT_LMR_OTHER_ERROR", 4 << 8},
		{dat.ReasonRMROther, "DAT_RMR_OTHER_ERROR", 7 << 8},
		{dat.ReasonPZOther, "DAT_PZ_OTHER_ERROR", 6 << 8},
	}},
}

func TestAsyncReasonsOfEachKindCountFromZero(t *testing.T) {
	for _, c := range []struct {
		reason dat.AsyncReason
		handle dat.HandleType
		want   int
	}{
		{dat.ReasonIACatastrophic, dat.HandleIA, 0},
		{dat.ReasonIAOther, dat.HandleIA, 1},
		{dat.ReasonEPTransferTo, dat.HandleEP, 0},
		{dat.ReasonEPOther, dat.HandleEP, 1},
		{dat.ReasonEPSoftHighWatermark, dat.HandleEP, 2},
		{dat.ReasonEVDOverflow, dat.HandleEVD, 0},
		{dat.ReasonEVDOther, dat.HandleEVD, 1},
		{dat.ReasonSRQTransferTo, dat.HandleSRQ, 0},
		{dat.ReasonSRQOther, dat.HandleSRQ, 1},
		{dat.ReasonSRQLowWatermark, dat.HandleSRQ, 2},
		{dat.ReasonLMROther, dat.HandleLMR, 0},
		{dat.ReasonRMROther, dat.HandleRMR, 0},
		{dat.ReasonPZOther, dat.HandlePZ, 0},
	} {
		if got := c.reason.DAT(); got != c.want || c.reason.Handle() != c.handle {
			t.Errorf("%v is reason %d of %v, want %d of %v", c.reason, got, c.reason.Handle(), c.want, c.handle)
		}
	}
}

func TestEveryEventNumberHasItsStream(t *testing.T) {
	for _, v := range eventTables[0].values {
		n := v.value.(dat.EventNumber)
		var want dat.Stream
		switch n {
		case dat.IBDTOEvent:
			want = dat.StreamDTO
		case dat.IBUDConnectionRequest:
			want = dat.StreamConnectionRequest
		case dat.IBUDConnectionEstablished, dat.IBUDConnectionReject, dat.IBUDConnectionError:
			want = dat.StreamConnection
		case dat.IBCollectiveEvent:
			want = dat.StreamExtensionBase
		case dat.ExtensionEvent, dat.IWExtensionRangeBase:
			want = 0
		default: // DAT keeps a range of numbers for each stream
			want = map[dat.EventNumber]dat.Stream{
				0x00000: dat.StreamDTO, 0x01000: dat.StreamRMRBind,
				0x02000: dat.StreamConnectionRequest, 0x04000: dat.StreamConnection,
				0x08000: dat.StreamAsync, 0x10000: dat.StreamSoftware,
			}[n&^0xFFF]
		}
		if got := n.Stream(); got != want {
			t.Errorf("%v is of stream %v, want %v", n, got, want)
		}
	}
	for _, n := range []dat.EventNumber{0, 0x4009, 0x3000} {
		if got := n.Stream(); got != 0 {
			t.Errorf("%v is of stream %v, want none", n, got)
		}
	}
}

func TestMergeIndexesAreDATs(t *testing.T) {
	got := [...]int{dat.MergeSoftware, dat.MergeConnectionRequest, dat.MergeDTO,
		dat.MergeConnection, dat.MergeRMRBind, dat.MergeAsync, dat.MergeCount}
	if want := [...]int{0, 1, 2, 3, 4, 5, 6}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// An EVD's flags are legal if and only if every pair of them is true in the matrix. All
// sets of streams are tried on matrices that lack one pair.
func TestStreamsMergeIffEveryPairDoes(t *testing.T) {
	streams := [...]dat.Stream{dat.StreamSoftware, dat.StreamConnectionRequest, dat.StreamDTO,
		dat.StreamConnection, dat.StreamRMRBind, dat.StreamAsync}
	for i := range streams {
		for j := range streams[:i] {
			m := dat.FullMergeMatrix()
			m[i][j], m[j][i] = false, false
			for set := range 1 << len(streams) {
				var flags dat.Stream
				for k, s := range streams {
					if set>>k&1 == 1 {
						flags |= s
					}
				}
				want := set>>i&1 == 0 || set>>j&1 == 0
				if got := m.Allows(flags); got != want {
					t.Fatalf("without %v with %v: %v allowed is %v", streams[i], streams[j], flags, got)
				}
			}
		}
	}
	if m := dat.FullMergeMatrix(); m.Allows(dat.StreamExtensionBase) || m.Allows(dat.StreamDTO|0x800) {
		t.Error("a stream without merge index is allowed")
	}
	var none dat.MergeMatrix
	for _, s := range streams {
		if !none.Allows(s) {
			t.Errorf("%v is not allowed alone", s)
		}
	}
}
