package dat

// IBExtType says what the extension data of an event is (DAT_IB_EXT_TYPE).
type IBExtType uint8

// The types that this provider has.
const (
	IBExtFetchAndAdd        IBExtType = iota // a fetch-and-add ended
	IBExtCompareAndSwap                      // a compare-and-swap ended
	IBExtRDMAWriteImmed                      // an RDMA write with immediate data ended
	IBExtRDMAWriteImmedData                  // a receive was used up by one: Immediate
	IBExtRecvImmedData                       // a receive of a send with immediate data: Immediate
	IBExtUDConnectRequest                    // a datagram peer asks
	IBExtUDRemoteAH                          // the peer that was asked has answered: Handle
	IBExtUDPassiveRemoteAH                   // the peer that asked was answered: Handle
	IBExtUDSend                              // a datagram was sent
	IBExtUDRecv                              // a datagram was received: Immediate, if it has any
	IBExtUDConnectReject                     // the datagram peer rejected
	IBExtUDConnectError                      // the datagram peer could not be asked
	ibExtNone               IBExtType = 0xFF
)

var ibExtNames = []string{
	"FETCH_AND_ADD", "CMP_AND_SWAP", "RDMA_WRITE_IMMED", "RDMA_WRITE_IMMED_DATA", "RECV_IMMED_DATA", "UD_CONNECT_REQUEST",
	"UD_REMOTE_AH", "UD_PASSIVE_REMOTE_AH", "UD_SEND", "UD_RECV", "UD_CONNECT_REJECT", "UD_CONNECT_ERROR",
}

// String returns DAT's name without DAT_IB_.
func (t IBExtType) String() string { return enumName("IBExtType", ibExtNames, t) }

// MarshalText returns String, so that JSON shows the name.
func (t IBExtType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// IBExtStatus is the outcome in the extension data of an event (DAT_IB_STATUS).
type IBExtStatus uint8

// The outcomes.
const (
	IBExtSuccess       IBExtStatus = iota // it worked
	IBExtOpErr                            // it failed
	IBExtCollectiveErr                    // a collective failed
)

var ibExtStatusNames = []string{"SUCCESS", "OP_ERR", "COLL_COMP_ERR"}

// String returns DAT's name without DAT_.
func (s IBExtStatus) String() string { return enumName("IBExtStatus", ibExtStatusNames, s) }

// MarshalText returns String, so that JSON shows the name.
func (s IBExtStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// IBExtData is the extension data of an event (DAT_IB_EXTENSION_EVENT_DATA): what C programs find beside the
// data of the event itself. DTO and UD have the same in Go's words.
type IBExtData struct {
	Type   IBExtType
	Status IBExtStatus
	// Immediate is the immediate data that arrived.
	Immediate uint32
	// Handle is the datagram peer.
	Handle *AddressHandle
}

// IBExtension is the view of the InfiniBand extension's events. ok is false for other events.
func (ev *Event) IBExtension() (data IBExtData, ok bool) {
	data.Type = ibExtNone
	switch ev.Number {
	case IBDTOEvent:
		switch ev.op {
		case OpFetchAdd:
			data.Type = IBExtFetchAndAdd
		case OpCompareSwap:
			data.Type = IBExtCompareAndSwap
		case OpRDMAWriteImmediate:
			data.Type = IBExtRDMAWriteImmed
		case OpReceiveImmediate:
			data.Type = IBExtRDMAWriteImmedData
		case OpReceiveMessageImmediate:
			data.Type = IBExtRecvImmedData
		case OpSendUD:
			data.Type = IBExtUDSend
		case OpReceiveUD, OpReceiveUDImmediate:
			data.Type = IBExtUDRecv
		}
		if ev.status != StatusSuccess {
			data.Status = IBExtOpErr
		}
		data.Immediate = ev.DTO().Immediate
	case IBUDConnectionRequest:
		data.Type = IBExtUDConnectRequest
	case IBUDConnectionEstablished:
		d := ev.UD()
		data.Type, data.Handle = IBExtUDRemoteAH, d.Handle
		if d.Passive {
			data.Type = IBExtUDPassiveRemoteAH
		}
	case IBUDConnectionReject:
		data.Type, data.Status = IBExtUDConnectReject, IBExtOpErr
	case IBUDConnectionError:
		data.Type, data.Status = IBExtUDConnectError, IBExtOpErr
	}
	if data.Type == ibExtNone {
		return IBExtData{}, false
	}
	return data, true
}
