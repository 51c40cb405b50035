"""RocketMQ's keys that mean nothing here, so that an existing broker.conf brings no warnings.

Some tune thread pools and locks that one event loop does not have, or let a flush wait for pages,
which none does here; some belong to what is not served (controllers, RocksDB); some are spellings
of old releases that RocketMQ itself ignores.
"""

_WITHOUT_EFFECT_TEXT = """
    abortFile accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
    ackThreadPoolQueueCapacity adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity
    allAckInSyncStateSet asyncLearner asyncSendEnable autoMessageVersionOnTopicLen
    authenticationMetadataProvider authenticationProvider authenticationStrategy
    authorizationMetadataProvider authorizationProvider authorizationStrategy
    batchDispatchRequestThreadPoolNums bitMapLengthConsumeQueueExt
    broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond brokerConfigPath
    brokerFastFailureEnable brokerHeartbeatInterval brokerIP2 brokerNotActiveTimeoutMillis
    channelExpiredTimeout channelNotActiveInterval checkTransactionMessageEnable
    clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
    clientCloseSocketIfTimeout clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity
    clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientRequestThreadPoolNums
    clientRequestThreadPoolQueueCapacity clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads clusterTest coldDataFlowControlEnable coldDataScanEnable
    commercialBaseCount commercialBigCount commercialEnable commercialTimerCount
    commercialTransCount commitCommitLogLeastPages commitCommitLogThoroughInterval
    commitIntervalCommitLog compactionCqMappedFileSize compactionMappedFileSize
    compactionScheduleInternal compatibleWithOldNameSrv compressedRegister configBlackList
    configManagerVersion configStorePath connectTimeoutMillis consumerFallbehindThreshold
    consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
    correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval dataReadAheadEnable
    defaultPopShareQueueNum defaultThreadPoolNums defaultThreadPoolQueueCapacity
    delayOffsetUpdateVersionStep deleteConsumeQueueFilesInterval
    destroyMapedFileIntervalForcibly disableConsumeIfConsumerReadSlowly disappearTimeAfterStart
    diskFallRecorded duplicationEnable enableAutoInSyncReplicas enableBroadcastOffsetStore
    enableBuildConsumeQueueConcurrently enableCalcFilterBitMap enableCleanExpiredOffset
    enableCompaction enableConsumeQueueExt enableControllerInNamesrv enableCreateSysGroup
    enableDetailStat enableNetWorkFlowControl
    enableNotifyAfterPopOrderLockRelease enablePopBatchAck enablePopBufferMerge enablePopLog
    enablePopMessageThreshold enableRemoteEscape enableRetryTopicV2
    enableRunningFlagsInFlush enableScheduleAsyncDeliver enableScheduleMessageStats
    enableShutdownGracefully enableSingleTopicRegister enableSlaveActingMaster
    enableSplitRegistration enabledAppendPropCRC endTransactionPoolQueueCapacity
    endTransactionThreadPoolNums estimateAccumulation expectConsumerNumUseFilter
    fastFailIfNoBufferInStorePool fetchNamesrvAddrByAddressServer filterDataCleanTimeSpan
    flushCommitLogLeastPages flushCommitLogThoroughInterval
    flushCommitLogTimed flushConsumeQueueLeastPages flushConsumerOffsetHistoryInterval
    flushDelayOffsetInterval flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC
    haFlowControlEnable haMaxTimeSlaveNotCatchup haServerAddr
    heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode
    initPopOffsetByCheckMsgInMem kvConfigPath litePullMessageThreadPoolNums
    litePullThreadPoolQueueCapacity loadBalanceProcessorThreadPoolNums
    loadBalanceThreadPoolQueueCapacity lockInStrictMode logicalDiskSpaceCleanForciblyThreshold
    mapedFileSizeCommitLog mapedFileSizeConsumeQueue mapedFileSizeConsumeQueueExt
    mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog maxChecksumRange maxConsumeQueueScan
    maxErrorRateOfBloomFilter maxHaTransferByteInSecond maxPopPollingSize
    maxRecoveryCommitlogFiles maxTopicLength messageIndexSafe messageStorePlugIn
    metricsExportIntervalInMills metricsExporterType metricsGrpcExporterHeader
    metricsGrpcExporterIntervalInMills metricsGrpcExporterTarget
    metricsGrpcExporterTimeOutInMills metricsInDelta metricsLabel
    metricsLoggingExporterIntervalInMills metricsPromExporterHost metricsPromExporterPort
    needWaitForService notifyMinBrokerIdChanged offsetCheckInSlave
    osPageCacheBusyTimeOutMills popConsumerKVServiceEnable popConsumerKVServiceInit
    popPollingMapSize popPollingSize
    popResponseReturnActualRetryTopic processReplyMessageThreadPoolNums productEnvName
    pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putConsumeQueueDataByFileChannel putMessageTimeout putMsgIndexHightWater
    queryMessageThreadPoolNums queryThreadPoolQueueCapacity readOnlyCommitLogStorePaths
    readUnCommitted realTimeNotifyConsumerChange recheckReputOffsetFromCq
    recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval rejectCheckGroup
    replicasPerDiskPartition replyThreadPoolQueueCapacity
    retrieveMessageFromPopRetryTopicV1 returnOrderTopicConfigToBroker reviveInterval
    reviveQueueNum rocketmqHome sampleCountThreshold sampleSteps
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    searchBcqByCacheEnable sendMessageThreadPoolNums sendThreadPoolQueueCapacity
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds
    serverLoadBalancerEnable serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog
    serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds
    skipPreOnline spinLockCollisionRetreatOptimalDegree
    splitRegistrationSize storeCheckpoint storePathBrokerIdentity storePathCheckpoint
    storePathConsumeQueue storePathDLedgerCommitLog storePathEpochFile storePathIndex
    subscriptionExpiredTimeout supportActingMaster syncBrokerMemberGroupPeriod
    syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerCongestNumEachSlot
    timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess
    timerFlushIntervalMs timerGetMessageThreadNum timerMetricSmallThreshold
    timerPutMessageThreadNum timerRollWindowSlot timerSkipUnknownError
    timerStopDequeue timerStopEnqueue timerWarmEnable topicQueueLockNum
    totalReplicas transactionMetricFlushInterval
    transactionOpBatchInterval transactionOpMsgMaxSize transferMsgByHeap
    transientStorePoolEnable transientStorePoolSize travelCqFileNumWhenGetMessage
    unRegisterBrokerQueueCapacity useABSLock useEpollNativeSelector
    useReentrantLockWhenPutMessage useTLS waitSecondsForService
    waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue
    waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue
    waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    warmMapedFileEnable writeBufferHighWaterMark writeBufferLowWaterMark writeWithoutMmap
"""
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT_TEXT.split())

# Keys that promise something which running without them would silently break: value -> what to do.
REFUSED = {
    "aclEnable": "the access control of RocketMQ 4 is not served: use authenticationEnabled and "
    "authorizationEnabled, or remove the setting to run without",
    "migrateAuthFromV1Enabled": "plain_acl.yml is not read at the start: remove the setting, and "
    "run `rockhopper auth import plain_acl.yml` against the broker",
    "enableDLegerCommitLog": "DLedger's commit log has another format and is not served",
    "enableControllerMode": "controller mode is not served",
}
